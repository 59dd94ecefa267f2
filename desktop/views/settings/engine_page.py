"""How models are loaded, for all of them: what is not chosen here is chosen for each model and this computer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop import icons, terms
from desktop.bridge import EngineBridge
from desktop.model_control import ModelControl
from desktop.theme import Theme
from desktop.views.settings.automatic_words import of_loaded
from desktop.views.settings.option_form import OptionForm
from desktop.views.settings.page import Section, hairline
from desktop.views.settings.sampling_form import FloatBox
from desktop.views.settings.speed_check import SpeedCheck
from desktop.widgets.term import explain
from engine import engine_options
from engine.engine_options import OPTIONS, EngineOptions
from engine.errors import EngineError, InvalidRequest

if TYPE_CHECKING:
    from engine.cores import Cores
    from engine.events import ModelState
    from engine.service import Engine

_GROUPS = (
    ("Context and cache", ("n_ctx", "n_slots", "kv_type_k", "kv_type_v", "flash_attention", "swa_full")),
    ("Processor", ("n_threads", "n_threads_batch")),
    ("Prompts", ("n_batch", "n_ubatch")),
    ("GPU", ("n_gpu_layers", "offload_kqv", "op_offload")),
    ("Memory of the file", ("use_mmap", "use_mlock")),
)
_SAVINGS = (("kv_on_disk", "Keep what was read of a chat"), ("speculate", "Guess ahead"))


class EnginePage(QWidget):
    """Signals:
    failed(object): a value could not be saved.
    """

    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, control: ModelControl) -> None:
        super().__init__()
        self.setObjectName("engine_page")
        self._engine, self._bridge, self._control = engine, bridge, control
        self._cores: Cores | None = None
        self._loading = False
        self.forms: list[OptionForm] = []
        self._sections: list[Section] = []
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        note = Section.note(
            "What is left automatic is chosen for each model and for this computer. A model can have its own values, "
            "in the library. Changes apply when a model is next loaded."
        )
        note.setContentsMargins(0, 12, 0, 4)
        box.addWidget(note)
        box.addWidget(self._reload_bar())
        for title, names in _GROUPS:
            section = Section(title)
            form = OptionForm(names)
            form.chosen.connect(self._on_chosen)
            section.add(form)
            self.forms.append(form)
            box.addWidget(section)
            box.addWidget(hairline())
            self._sections.append(section)
        self._sections.append(self._shortcuts())
        box.addWidget(self._sections[-1])
        box.addWidget(hairline())
        speed = Section("Speed of this computer")
        self.speed_check = SpeedCheck(engine, bridge)
        speed.add(self.speed_check)
        box.addWidget(speed)
        bridge.model_state_changed.connect(self._on_state)

    def _shortcuts(self) -> Section:
        """What saves work, with the answers staying the same."""
        section = Section("Saving work")
        declared = type(self._engine.settings).declared()
        self.kv_disk_gib = FloatBox()
        self.kv_disk_gib.setObjectName("kv_disk_gib")
        self.kv_disk_gib.lineEdit().setTextMargins(8, 0, 0, 0)
        self.kv_disk_gib.setRange(0.1, 100_000)
        self.kv_disk_gib.setSuffix(" GiB")
        self.kv_disk_gib.setKeyboardTracking(False)
        self.kv_disk_gib.valueChanged.connect(lambda value: self._save(kv_disk_gib=value))
        self.boxes: dict[str, QCheckBox] = {}
        for name, words in _SAVINGS:
            box = QCheckBox(words)
            box.setObjectName(name)
            box.setAccessibleName(words)
            explain(box, terms.SETTINGS[name], declared[name].doc)
            box.toggled.connect(lambda on, name=name: self._save(**{name: on}))
            self.boxes[name] = box
            section.add(box)
            section.add(Section.note(declared[name].doc))
            if name == "kv_on_disk":
                words_of_it = section.row("Most of it on disk", self.kv_disk_gib, declared["kv_disk_gib"].doc)
                for part in (words_of_it, self.kv_disk_gib):
                    explain(part, terms.SETTINGS["kv_disk_gib"], declared["kv_disk_gib"].doc)
        return section

    def _save(self, **values: Any) -> None:
        if self._loading:
            return
        try:
            self._bridge.run(self._engine.change_settings(**values), None, self.failed.emit, owner=self)
        except EngineError as error:
            self.failed.emit(error)
        self.kv_disk_gib.setEnabled(self._engine.settings.kv_on_disk)

    def _reload_bar(self) -> QWidget:
        self.reload = QPushButton("Reload to apply")
        self.reload.setObjectName("reload_model")
        self.reload.setToolTip("Load the model again with these settings")
        self.reload.clicked.connect(self._reload)
        self.reload_words = QLabel()
        self.reload_words.setObjectName("reload_words")
        self.reload_words.setProperty("role", "small")
        self.reload_words.setWordWrap(True)
        self.reload_bar = QWidget()
        row = QHBoxLayout(self.reload_bar)
        row.setContentsMargins(0, 8, 0, 0)
        row.setSpacing(12)
        row.addWidget(self.reload)
        row.addWidget(self.reload_words, 1)
        self.reload_bar.hide()
        return self.reload_bar

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for form in self.forms:
            form.apply_theme(theme, scale)
        for section in self._sections:
            section.apply_scale(scale)
        icons.set_icon(self.reload, "reload", theme)

    # ---- values

    def row(self, name: str) -> Any:
        """The row of an option."""
        return next(form.rows[name] for form in self.forms if name in form.rows)

    def load(self) -> None:
        """Show the settings as they are."""
        settings = self._engine.settings
        for form in self.forms:
            form.set_options(settings.engine)
        self._loading = True
        for name, box in self.boxes.items():
            box.setChecked(bool(getattr(settings, name)))
        self.kv_disk_gib.setValue(settings.kv_disk_gib)
        self.kv_disk_gib.setEnabled(settings.kv_on_disk)
        self._loading = False
        self._show_automatic()
        self._show_reload()
        self.speed_check.load()
        if self._cores is None:
            self._bridge.run(self._engine.cores(), self._on_cores, lambda error: None, owner=self)

    def commit(self) -> None:
        """Take what was typed now."""
        for form in self.forms:
            form.commit()

    def _on_cores(self, cores: Cores) -> None:
        self._cores = cores
        self._show_automatic()

    def _on_state(self, state: ModelState) -> None:
        if state.status != "loading" and self.isVisible():
            self._show_automatic()
        self._show_reload()

    def _show_automatic(self) -> None:
        state = self._control.state
        request = self._engine.model.request if state.model is not None else None
        model = state.model
        if model is not None:
            model = msgspec.structs.replace(model, name=self._control.name_of(state))
        words = of_loaded(self._cores, self._engine.settings.engine, model, request)
        for form in self.forms:
            form.set_automatic(words)

    def _on_chosen(self, name: str, value: Any) -> None:
        options: EngineOptions = msgspec.structs.replace(self._engine.settings.engine, **{name: value})
        try:
            engine_options.check(options)
            future = self._engine.change_settings(engine=options)
        except InvalidRequest as error:
            self.row(name).fail(f"{error.message}. {error.hint}".strip())
            return
        except EngineError as error:
            self.failed.emit(error)
            return
        for form in self.forms:  # a value that was refused may be allowed now
            form.set_options(options)
        self._show_automatic()
        self._show_reload()
        self._bridge.run(future, None, self.failed.emit, owner=self)

    # ---- reload

    def _show_reload(self) -> None:
        names = self._engine.needs_reload()
        self.reload_bar.setVisible(bool(names))
        if names:
            labels = [OPTIONS[name].label if name in OPTIONS else name for name in names]
            self.reload_words.setText(f"Other than in the loaded model: {', '.join(labels)}.")

    def _reload(self) -> None:
        self.commit()
        path = self._control.state.path
        if path:
            self._control.load(path)
