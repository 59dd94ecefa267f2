"""The list of models that can be had: the catalogue without a network, the Hub when the user asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QToolButton, QVBoxLayout, QWidget

from desktop import icons
from desktop.fit_desk import FitDesk, Subject
from desktop.model_desk import ModelDesk
from desktop.models.catalog_rows import CATALOG, HUB, catalog_row, hub_row, usefulness
from desktop.models.hub_results import GOOD, ModelRow, grouped
from desktop.theme import Theme
from desktop.views.hub.hub_state import HubState
from desktop.views.hub.model_list import ModelList
from desktop.views.hub.what_if import DEFAULT_CHATS
from engine.fit.plan_records import Wishes

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan
    from engine.models.catalog import CatalogModel
    from engine.models.hub import HubModel, SearchPage

_STAYS = "The models below are known without a network."


class SearchBox(QLineEdit):
    """Esc empties it, Down goes to the list.

    Signals:
        leave_down: the user wants to go into the list.
    """

    leave_down = Signal()

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Escape
            and self.text()
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() == Qt.Key.Key_Down:
            self.leave_down.emit()
        else:
            super().keyPressEvent(event)


class DiscoverPanel(QWidget):
    """Signals:
    catalog_chosen(CatalogModel), repo_chosen(str): show this model.
    """

    catalog_chosen = Signal(object)
    repo_chosen = Signal(str)

    def __init__(self, desk: ModelDesk, fit: FitDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("discover_panel")
        self._desk, self._fit = desk, fit
        self._catalog: list[CatalogModel] = []
        self._plans: dict[str, FitPlan | None] = {}
        self._waiting = 0
        self._judged = False
        self._chosen = False
        self._round = 0
        self._hits: list[HubModel] | None = None
        self._query = ""
        self._cursor = ""
        self._number = 0
        self._build()
        fit.machine_changed.connect(self._judge)

    def _build(self) -> None:
        self.search = SearchBox()
        self.search.setObjectName("search_models")
        self.search.setPlaceholderText("Search, or pick one below")
        self.search.setAccessibleName("Search models")
        self.search.setToolTip("Typing filters the list below; Enter asks the Hub over the network")
        self.search.textChanged.connect(self._on_text)
        self.search.returnPressed.connect(self.ask_hub)
        self.go = QToolButton()
        self.go.setObjectName("search_hub")
        self.go.setProperty("kind", "icon")
        self.go.setAccessibleName("Search the Hub")
        self.go.setToolTip("Ask the Hugging Face Hub for these words, over the network")
        self.go.clicked.connect(self.ask_hub)
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.search, 1)
        top.addWidget(self.go)
        self.state = HubState("hub_state")
        self.state.retry_requested.connect(self.ask_hub)
        self.state.token_entered.connect(self._on_token)
        self.list = ModelList("discover_list", "Models to download", "Models that can be had. Enter shows one")
        self.list.chosen.connect(self._on_chosen)
        self.search.leave_down.connect(self.list.focus_first)
        self.more = QPushButton("More results")
        self.more.setObjectName("more_results")
        self.more.setToolTip("Ask the Hub for the next page")
        self.more.clicked.connect(self._next_page)
        self.more.hide()
        self.back = QPushButton("Back to the catalogue")
        self.back.setObjectName("back_to_catalog")
        self.back.setProperty("kind", "link")
        self.back.setToolTip("Show the models that are known without a network")
        self.back.clicked.connect(self.search.clear)
        self.back.hide()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addLayout(top)
        box.addWidget(self.state)
        box.addWidget(self.back, 0, Qt.AlignmentFlag.AlignLeft)
        box.addWidget(self.list, 1)
        box.addWidget(self.more)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.list.apply_theme(theme, scale)
        icons.set_icon(self.go, "search", theme, "ink")

    # ---- the catalogue

    def start(self) -> None:
        """Show the catalogue; no network."""
        if not self._catalog:
            self._desk.hub.catalog(self._on_catalog)

    @property
    def catalog(self) -> list[CatalogModel]:
        return list(self._catalog)

    def plan_of(self, model_id: str) -> FitPlan | None:
        """The plan of a catalogue model in its usual quantization, once there is one."""
        return self._plans.get(model_id)

    def _on_catalog(self, models: list[CatalogModel]) -> None:
        self._catalog = models
        self._show()
        self._judge()

    def _judge(self) -> None:
        """Plan every model of the catalogue that has a shape."""
        self._show()
        if self._fit.machine is None or not self._catalog:
            return
        self._round += 1
        number = self._round
        models = list(self._catalog)
        self._fit.run(lambda: [subject_of(model, model.quant) for model in models], lambda s: self._plan(number, s))

    def _plan(self, number: int, subjects: list[Subject | None]) -> None:
        if number != self._round:
            return
        known = [(model.id, s) for model, s in zip(self._catalog, subjects, strict=True) if s is not None]
        self._plans = {model.id: None for model, s in zip(self._catalog, subjects, strict=True) if s is None}
        self._waiting = len(known)

        def done(place: int, plan: FitPlan | None) -> None:
            if number == self._round:
                self._plans[known[place][0]] = plan
                self._waiting -= 1
                if self._waiting == 0:
                    self._judged = True
                    self._show()

        self._fit.plan_each([subject for _, subject in known], Wishes(n_slots=DEFAULT_CHATS), done)
        if not known:
            self._judged = True
            self._show()

    def _show(self) -> None:
        machine = self._fit.machine
        if self._hits is not None:
            hits = [hub_row(hit, machine) for hit in self._hits]
            title = f"{len(hits)} on the Hub" + ("" if not self._cursor else ", more to come")
            self.list.show_rows([ModelRow(title), *hits] if hits else [])
            return
        words = self.search.text().casefold().split()
        judged = self._judged
        shown = [model for model in self._catalog if all(word in _text(model) for word in words)]
        if judged:
            shown.sort(key=lambda model: usefulness(model, self._plans.get(model.id)))
        rows = [catalog_row(m, self._plans.get(m.id), machine, judged and m.id in self._plans) for m in shown]
        if not judged:
            self.list.show_rows([ModelRow("Catalogue"), *(row for _, row in rows)] if rows else [])
        else:
            self.list.show_rows(grouped(rows))
            self.choose_first()
        if self.state.isHidden() and words and not shown:
            self.state.show_note("Nothing in the catalogue", "Press Enter to ask the Hub.")

    # ---- the Hub

    def _on_text(self, _: str) -> None:
        self._number += 1  # an answer on its way is for other words
        self._hits, self._cursor = None, ""
        self.state.clear()
        self.more.hide()
        self.back.hide()
        self._show()

    def ask_hub(self) -> None:
        """Search the Hub for the words in the box. The only way from this panel to the network."""
        self._query = self.search.text().strip()
        self._ask("")

    def _next_page(self) -> None:
        self._ask(self._cursor)

    def _ask(self, cursor: str) -> None:
        self._number += 1
        number = self._number
        self.more.setEnabled(False)
        self.state.show_busy("Asking the Hub…")

        def done(page: SearchPage) -> None:
            if number == self._number:
                self._on_page(page, bool(cursor))

        def failed(error: BaseException) -> None:
            if number == self._number:
                self.more.setEnabled(True)
                self.state.show_error(error, what_stays="" if self._hits else _STAYS)

        self._desk.hub.search(self._query, cursor, done, failed)

    def _on_page(self, page: SearchPage, is_next: bool) -> None:
        self.state.clear()
        self._hits = [*(self._hits or []), *page.rows] if is_next else list(page.rows)
        self._cursor = page.next
        self.more.setVisible(bool(page.next))
        self.more.setEnabled(True)
        self.back.show()
        self._show()
        if not self._hits:
            self.state.show_note("Nothing found", "The Hub has no GGUF models for these words. Try fewer of them.")

    def _on_token(self, token: str) -> None:
        self._desk.hub.save_token(token, lambda _: self.ask_hub(), self.state.show_error)

    # ---- choosing

    def _on_chosen(self, key: str) -> None:
        self._chosen = True
        if key.startswith(HUB):
            self.repo_chosen.emit(key.removeprefix(HUB))
            return
        model = next((m for m in self._catalog if CATALOG + m.id == key), None)
        if model is not None:
            self.catalog_chosen.emit(model)

    def leave_choice(self) -> None:
        """A model is shown that was not chosen here: the first of the list must not take its place later."""
        self._chosen = True

    def choose_first(self) -> None:
        """Show the first model that is good here, where none is shown yet."""
        if self._chosen or self._hits is not None or self.search.text():
            return
        rows = self.list.rows.rows
        good = next((place for place, row in enumerate(rows) if not row.key and row.title == GOOD), None)
        first = next((row.key for row in rows[good or 0 :] if row.key), "")
        if first:
            self.list.mark(first)
            self._on_chosen(first)


def subject_of(model: CatalogModel, quant: str) -> Subject | None:
    """What can be planned of a catalogue model before anything of it is here; None without a known shape."""
    header = model.header(quant)
    return None if header is None else Subject(header, quant, model.size_bytes(quant))


def _text(model: CatalogModel) -> str:
    return " ".join((model.name, model.maker, model.summary, *model.purposes, model.repo)).casefold()
