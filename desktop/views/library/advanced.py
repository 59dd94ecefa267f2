"""The rest of a model's own options, folded: threads, batches, types of the cache, how the file comes into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from desktop import icons
from desktop.theme import LIGHT, Theme
from desktop.views.settings.automatic_words import of_plan
from desktop.views.settings.option_form import OptionForm
from engine import engine_options
from engine.engine_options import EngineOptions
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.cores import Cores
    from engine.fit.plan_records import FitPlan

_NAMES = (
    *("n_threads", "n_threads_batch", "n_batch", "n_ubatch", "flash_attention", "kv_type_k", "kv_type_v"),
    *("swa_full", "offload_kqv", "op_offload", "use_mmap", "use_mlock"),
)


class Advanced(QWidget):
    """Signals:
    chosen(EngineOptions): the options of the model, with what the user has chosen here.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("advanced")
        self._theme, self._scale = LIGHT, 1.0
        self._options = self._common = EngineOptions()
        self._plan: FitPlan | None = None
        self._cores: Cores | None = None
        self.form: OptionForm | None = None  # made when it is first opened
        self.fold = QPushButton("Advanced")
        self.fold.setObjectName("advanced_fold")
        self.fold.setProperty("kind", "text")
        self.fold.setCheckable(True)
        self.fold.setAutoDefault(False)
        self.fold.setToolTip("Threads, batches, types of the KV cache, how the file comes into memory")
        self.fold.toggled.connect(self._on_fold)
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(0, 0, 0, 0)
        self._box.setSpacing(6)
        self._box.addWidget(self.fold, 0, Qt.AlignmentFlag.AlignLeft)
        self._name()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        if self.form is not None:
            self.form.apply_theme(theme, scale)
        self._name()

    def set_options(self, options: EngineOptions, common: EngineOptions) -> None:
        """The model's own options, and those for all models; tells nobody."""
        self._options, self._common = options, common
        if self.form is not None:
            self.form.set_options(options)
        self._show_automatic()
        self._name()

    def show_plan(self, plan: FitPlan | None, cores: Cores | None) -> None:
        """What is automatic now."""
        self._plan, self._cores = plan, cores
        self._show_automatic()

    def commit(self) -> None:
        """Take what was typed now."""
        if self.form is not None:
            self.form.commit()

    def _show_automatic(self) -> None:
        if self.form is not None and self.form.isVisibleTo(self):
            self.form.set_automatic(of_plan(self._cores, self._options, self._common, self._plan))

    def _on_fold(self, is_open: bool) -> None:
        if is_open and self.form is None:
            self.form = OptionForm(_NAMES)
            self.form.chosen.connect(self._on_chosen)
            self.form.apply_theme(self._theme, self._scale)
            self.form.set_options(self._options)
            self._box.addWidget(self.form)
        if self.form is not None:
            self.form.setVisible(is_open)
        self._show_automatic()
        self._name()

    def _on_chosen(self, name: str, value: Any) -> None:
        assert self.form is not None
        options: EngineOptions = msgspec.structs.replace(self._options, **{name: value})
        try:
            # with what holds for all models: a quantized V cache cannot be where flash attention is off for all
            engine_options.check(EngineOptions(**engine_options.merged(options, self._common)))
        except InvalidRequest as error:
            self.form.rows[name].fail(f"{error.message}. {error.hint}".strip())
            return
        self._options = options
        self.form.set_options(options)
        self._show_automatic()
        self._name()
        self.chosen.emit(options)

    def _name(self) -> None:
        count = sum(getattr(self._options, name) is not None for name in _NAMES)
        self.fold.setText(f"Advanced · {count} chosen" if count else "Advanced")
        icons.set_icon(self.fold, "down" if self.fold.isChecked() else "expand", self._theme)
        self.fold.setAccessibleName(f"{self.fold.text()}, {'open' if self.fold.isChecked() else 'folded'}")
