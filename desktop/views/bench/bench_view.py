"""The benchmark: measure a model, look at the figures, compare them with earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QScrollArea, QVBoxLayout, QWidget

from desktop.bench_desk import BenchDesk
from desktop.errors import describe
from desktop.model_control import ModelControl
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.views.bench.form import BenchForm
from desktop.views.bench.results import KeptResults, ResultPanel
from desktop.views.settings.page import hairline
from desktop.widgets.banner import Banner
from engine.errors import Cancelled, EngineError

if TYPE_CHECKING:
    from engine.bench import BenchSample, Progress
    from engine.bench_history import BenchResult
    from engine.models.library import LibraryModel

_WIDTH = 720
_WHAT = (
    "How fast this computer reads prompts and writes answers with a model: in the model's process alone, and through "
    "stored chats as you use them. It runs in a process of its own; your chats and the loaded model stay as they are."
)
_TWICE = (
    "A model is loaded: both take memory while this runs. For figures that nothing disturbs, unload it first and write "
    "nothing meanwhile."
)


class BenchView(QWidget):
    """Signals:
    message(str, object): say this, with a way back.
    """

    message = Signal(str, object)

    def __init__(self, desk: BenchDesk, control: ModelControl, tasks: Tasks, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bench_view")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._desk, self._control = desk, control
        self._samples: list[BenchSample] = []
        self._shown: BenchResult | None = None
        self._all: list[BenchResult] = []
        self._was_listed = False
        self.form = BenchForm()
        self.banner = Banner("bench_banner")
        self.note = QLabel(_TWICE)
        self.note.setObjectName("bench_note")
        self.result = ResultPanel(tasks)
        self.kept = KeptResults()
        self._build()
        self._wire()

    def _build(self) -> None:
        page = QWidget()
        self._page = page
        column = QVBoxLayout(page)
        column.setContentsMargins(4, 20, 4, 32)
        column.setSpacing(12)
        title = QLabel("Benchmark")
        title.setProperty("role", "title")
        what = QLabel(_WHAT)
        for label, role in ((what, "secondary"), (self.note, "label")):
            label.setProperty("role", role)
            label.setWordWrap(True)
        for part in (title, what, self.note, self.form, self.banner, hairline(), self.result, self.kept):
            column.addWidget(part)
        column.addStretch(1)
        outer = QWidget()
        centre = QHBoxLayout(outer)
        centre.setContentsMargins(20, 0, 20, 0)
        centre.addStretch(1)
        centre.addWidget(page, 100)
        centre.addStretch(1)
        self.scroll_area = QScrollArea()
        self.scroll_area.setObjectName("bench_scroll")
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.scroll_area.setWidget(outer)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.scroll_area)

    def _wire(self) -> None:
        desk = self._desk
        self.form.run_requested.connect(self.run)
        self.form.stop_requested.connect(self._stop)
        self.kept.chosen.connect(self._show)
        self.result.remove_requested.connect(self._remove)
        desk.progress.connect(self._on_progress)
        desk.finished.connect(self._on_finished)
        desk.ended.connect(self._on_ended)
        desk.history_changed.connect(self._on_history)
        desk.failed.connect(self._say)
        self._control.found.connect(self._on_models)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._page.setMaximumWidth(round(_WIDTH * max(1.0, scale)))
        for part in (self.form, self.result, self.kept):
            part.apply_theme(theme, scale)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.set_loaded()
        self._control.look()
        self._desk.read_history()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.banner.dismiss()

    def focus_first(self) -> None:
        (self.form.stop if self._desk.running else self.form.run).setFocus(Qt.FocusReason.OtherFocusReason)

    def set_loaded(self) -> None:
        """The window's own model has come or gone."""
        self.note.setVisible(self._control.state.status in ("ready", "loading"))

    # ---- models

    def _on_models(self, models: list[LibraryModel]) -> None:
        listed = [(self._name(model), model.path) for model in models]
        loaded = self._control.state
        if loaded.path and all(path != loaded.path for _, path in listed):
            listed.insert(0, (loaded.name, loaded.path))
        self.form.set_models(listed)
        if loaded.path and not self._was_listed:
            self.form.choose_model(loaded.path)
        self._was_listed = True

    @staticmethod
    def _name(model: LibraryModel) -> str:
        return f"{model.name} {model.quantization}".strip()

    # ---- measuring

    def run(self) -> None:
        """Begin with what the form says."""
        self.banner.dismiss()
        try:
            self._desk.start(self.form.spec())
        except EngineError as error:
            self._say(error)
            return
        self._samples = []
        self.form.set_running(True)
        self.form.stop.setFocus(Qt.FocusReason.OtherFocusReason)

    def _stop(self) -> None:
        self.form.set_stopping()
        self._desk.stop()

    def _on_progress(self, now: Progress) -> None:
        self.form.show_progress(now)
        if now.sample is not None:
            self._samples.append(now.sample)
            self.result.show_samples(self.form.model.currentText(), self._samples)

    def _on_finished(self, result: BenchResult) -> None:
        self._end()
        self._show(result)

    def _on_ended(self, error: BaseException) -> None:
        self._end()
        if self._shown is not None:
            self._show(self._shown)
        else:
            self.result.hide()
        if not isinstance(error, Cancelled):
            self._say(error)

    def _end(self) -> None:
        had_focus = self.form.stop.hasFocus()
        self.form.set_running(False)
        if had_focus:
            self.form.run.setFocus(Qt.FocusReason.OtherFocusReason)

    def _say(self, error: BaseException) -> None:
        self.banner.show_words(describe(error))

    # ---- results

    def _show(self, result: BenchResult) -> None:
        self._shown = result
        if not self._desk.running:
            same = [one for one in self._all if one.key == result.key]
            self.result.show_result(result, same if result in same else [*same, result])

    def _on_history(self, results: list[BenchResult]) -> None:
        self._all = results
        self.kept.show_results(results)
        shown = self._shown if self._shown in results else (results[-1] if results else None)
        self._shown = None
        if shown is not None:
            self.kept.choose(shown)
            self._show(shown)
        elif not self._desk.running:
            self.result.hide()

    def _remove(self, result: BenchResult) -> None:
        self._desk.remove(result)
        self.message.emit(f"Removed the measurement of {result.model}", lambda: self._desk.restore(result))
