"""The first start, in three steps at most: what this computer can run, one model for each purpose, chat.

It stands where the first chat would stand and blocks nothing: every other view can be opened, and it can be closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop import figures
from desktop.errors import describe, sentences
from desktop.fit_desk import FitDesk, Subject
from desktop.model_desk import ModelDesk
from desktop.models.downloads import permille, status_words
from desktop.theme import Theme
from desktop.views.first_run.recommend import PURPOSES, Recommendation, machine_words, recommend, smaller_words
from desktop.views.hub.discover_panel import subject_of
from desktop.views.hub.what_if import DEFAULT_CHATS
from desktop.views.hub.where_it_goes import speed_words
from desktop.widgets.term import explain
from engine.fit.plan_records import Wishes

if TYPE_CHECKING:
    from engine.events import DownloadInfo
    from engine.fit.plan_records import FitPlan
    from engine.models.catalog import CatalogModel
    from engine.models.hub import RepoInfo

_MOST_WIDE = 760


class FirstRun(QScrollArea):
    """Signals:
    chat_requested: chat with the starter now. models_requested: show all models. closed: it is not wanted.
    """

    chat_requested = Signal()
    models_requested = Signal()
    closed = Signal()

    def __init__(self, desk: ModelDesk, fit: FitDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("first_run_scroll")
        self.setAccessibleName("First start")
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._desk, self._fit = desk, fit
        self._catalog: list[CatalogModel] = []
        self._plans: dict[str, FitPlan | None] = {}
        self._left = 0
        self.cards: dict[str, Card] = {}
        self._build()
        fit.machine_changed.connect(self._on_machine)
        desk.downloads.changed.connect(lambda _: self._on_downloads())
        desk.downloads.listed.connect(self._on_downloads)

    def _build(self) -> None:
        title = _label("Welcome. Everything here runs on this computer.", "title", "first_title")
        self.close_button = QPushButton("Skip")
        self.close_button.setObjectName("first_close")
        self.close_button.setProperty("kind", "text")
        self.close_button.setToolTip("Close this page; models are found under Models at the left")
        self.close_button.clicked.connect(self.closed)
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignTop)
        self.machine = _label("Looking at this computer…", "", "first_machine")
        self.verdict = _label("", "secondary", "first_verdict")
        explain(self.machine, "ram")
        explain(self.verdict, "parameters")
        self._grid = QGridLayout()
        self._grid.setSpacing(12)
        for purpose, words in PURPOSES:
            card = Card(purpose, words)
            card.download_requested.connect(self._download)
            self.cards[purpose] = card
        self.error = _label("", "bad", "first_error")
        self.error.hide()
        self.chat = QPushButton("Chat now")
        self.chat.setObjectName("first_chat")
        self.chat.setProperty("kind", "primary")
        self.chat.setToolTip("Start with the small model that comes with Inglenook; downloads go on meanwhile")
        self.chat.clicked.connect(self.chat_requested)
        explain(self.chat, "language_model", self.chat.toolTip())
        self.chat_words = _label(
            "A small model comes with Inglenook and is ready now. It knows little, but it answers while the one you "
            "chose is being downloaded.",
            "secondary",
            "first_chat_words",
        )
        self.more = QPushButton("Show all models")
        self.more.setObjectName("first_models")
        self.more.setProperty("kind", "link")
        self.more.setToolTip("The catalogue, the Hub and the library")
        self.more.clicked.connect(self.models_requested)
        explain(self.more, "open_weights", self.more.toolTip())
        explain(self.chat_words, "language_model")
        last = QHBoxLayout()
        last.setSpacing(12)
        last.addWidget(self.chat)
        last.addWidget(self.more)
        last.addStretch(1)
        self._place(head, last)

    def _place(self, head: QHBoxLayout, last: QHBoxLayout) -> None:
        column = QWidget()
        self._column = column
        box = QVBoxLayout(column)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addLayout(head)
        for step, term, widgets in (
            ("1  What this computer can run", "fit_plan", (self.machine, self.verdict)),
            ("2  A model for what you want to do", "quantization", ()),
            ("3  Chat", "inference", (self.chat_words,)),
        ):
            box.addSpacing(12)
            heading = _label(step, "section", "")
            explain(heading, term)
            box.addWidget(heading)
            for widget in widgets:
                box.addWidget(widget)
            if step.startswith("2"):
                box.addLayout(self._grid)
                box.addWidget(self.error)
        box.addLayout(last)
        box.addStretch(1)
        page = QWidget()
        page.setObjectName("first_run")
        page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        outer = QHBoxLayout(page)
        outer.setContentsMargins(28, 28, 28, 24)
        outer.addStretch(1)
        outer.addWidget(column, 1000)
        outer.addStretch(1)
        self.setWidget(page)
        self._arrange(2)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._column.setMaximumWidth(round(_MOST_WIDE * max(1.0, scale)))
        self._scale = scale
        self._fit_columns()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def _fit_columns(self) -> None:
        self._arrange(2 if self.viewport().width() > 620 * getattr(self, "_scale", 1.0) else 1)

    def _arrange(self, columns: int) -> None:
        for place, card in enumerate(self.cards.values()):
            self._grid.addWidget(card, place // columns, place % columns)
        for column in range(2):
            self._grid.setColumnStretch(column, 1 if column < columns else 0)

    # ---- what fits

    def start(self) -> None:
        """Survey the computer and judge the catalogue; no network."""
        self._fit.look()
        self._desk.hub.catalog(self._on_catalog)
        self.chat.setFocus(Qt.FocusReason.OtherFocusReason)

    def _on_catalog(self, models: list[CatalogModel]) -> None:
        self._catalog = models
        self._judge()

    def _on_machine(self) -> None:
        machine = self._fit.machine
        if machine is not None:
            self.machine.setText(machine_words(machine))
            self._judge()

    def _judge(self) -> None:
        if self._fit.machine is None or not self._catalog:
            return
        models = list(self._catalog)

        def planned(subjects: list[Subject | None]) -> None:
            known = [(m, s) for m, s in zip(models, subjects, strict=True) if s is not None]
            self._left = len(known)
            self._plans = {}

            def done(place: int, plan: FitPlan | None) -> None:
                self._plans[known[place][0].id] = plan
                self._left -= 1
                if self._left == 0:
                    self._show()

            self._fit.plan_each([s for _, s in known], Wishes(n_slots=DEFAULT_CHATS), done)

        self._fit.run(lambda: [subject_of(model, model.quant) for model in models], planned, owner=self)

    def _show(self) -> None:
        chosen = recommend(self._catalog, self._plans)
        self.verdict.setText(smaller_words(self._catalog, self._plans))
        for purpose, card in self.cards.items():
            card.show_recommendation(chosen.get(purpose))
        self._on_downloads()

    # ---- downloading

    def _download(self, purpose: str) -> None:
        card = self.cards[purpose]
        found = card.recommendation
        if found is None:
            return
        self.error.hide()
        card.button.setEnabled(False)
        card.words.setText("Asking the Hub…")

        def failed(error: BaseException) -> None:
            words = describe(error)
            self.error.setText(sentences(words.text, words.hint, "You can chat with the small model meanwhile"))
            self.error.show()
            card.show_recommendation(found)

        def listed(info: RepoInfo) -> None:
            from engine.models.hub import find_set

            item = find_set(info.sets, found.model.quant) or next(iter(info.sets), None)
            if item is None:
                self.error.setText("The repository holds no model that can be used.")
                self.error.show()
                return
            card.label = item.label
            self._desk.hub.download(info, item, lambda _: self._on_downloads(), failed)

        self._desk.hub.repo(found.model.repo, listed, failed)

    def _on_downloads(self) -> None:
        for card in self.cards.values():
            if card.recommendation is not None:
                repo = card.recommendation.model.repo
                mine = [i for i in self._desk.downloads.infos if (i.repo, i.label) == (repo, card.label)]
                if mine:
                    card.show_download(mine[0])


class Card(QFrame):
    """One purpose and the model for it.

    Signals:
        download_requested(str): the purpose.
    """

    download_requested = Signal(str)

    def __init__(self, purpose: str, words: str) -> None:
        super().__init__()
        self.setObjectName(f"first_card_{purpose}")
        self.setProperty("role", "card")
        self.recommendation: Recommendation | None = None
        self.label = ""
        heading = _label(words, "label", "")
        self.name = _label("…", "strong", "")
        self.words = _label("", "small", "")
        self.button = QPushButton("Download")
        self.button.setObjectName(f"first_download_{purpose}")
        self.button.setAccessibleName(f"Download a model for {words}")
        self.button.setToolTip("Ask the Hub for this model and download it")
        self.button.setEnabled(False)
        self.button.clicked.connect(lambda: self.download_requested.emit(purpose))
        self.bar = QProgressBar()
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(f"Progress of the model for {words}")
        self.bar.setToolTip("How much has come")
        self.bar.hide()
        explain(self, "open_weights", "")
        explain(self.name, "quant_names")
        explain(self.words, "speed_estimate")
        explain(self.button, "repository", self.button.toolTip())
        explain(self.bar, "checksum", self.bar.toolTip())
        row = QHBoxLayout()
        texts = QVBoxLayout()
        texts.setSpacing(2)
        for label in (heading, self.name, self.words):
            texts.addWidget(label)
        row.addLayout(texts, 1)
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignVCenter)
        box = QVBoxLayout(self)
        box.setContentsMargins(14, 12, 14, 12)
        box.addLayout(row)
        box.addWidget(self.bar)

    def show_recommendation(self, found: Recommendation | None) -> None:
        self.recommendation = found
        self.button.setEnabled(found is not None)
        if found is None:
            self.name.setText("nothing that fits")
            self.words.setText("All models of the catalogue for this are too large here.")
            return
        self.label = found.model.quant
        self.name.setText(found.model.name)
        self.words.setText(f"{figures.size(found.model.size_bytes())} · about {speed_words(found.plan)}")
        self.setToolTip(found.model.summary)
        self.button.setAccessibleName(f"Download {found.model.name}")

    def show_download(self, info: DownloadInfo) -> None:
        self.bar.setVisible(info.status != "done")
        self.bar.setValue(permille(info))
        self.words.setText(status_words(info))
        self.button.setText("Downloaded" if info.status == "done" else "Downloading")
        self.button.setEnabled(False)


def _label(words: str, role: str, name: str) -> QLabel:
    label = QLabel(words)
    label.setObjectName(name)
    label.setProperty("role", role)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
