"""One model before it is here: what it is, its quantizations judged for this machine, and what if."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget

from desktop.fit_desk import FitDesk, Subject
from desktop.fit_sources import requantized
from desktop.model_desk import ModelDesk
from desktop.models.best_quant import choose
from desktop.models.catalog_rows import purposes
from desktop.models.downloads import permille
from desktop.models.library import licence_words, parameters
from desktop.models.quant_table import QuantRow
from desktop.models.repo_rows import make_row, set_key, set_note
from desktop.views.hub.discover_panel import subject_of
from desktop.views.hub.page_parts import USUAL_CONTEXT, ModelPageParts
from engine.fit.plan_records import Wishes

if TYPE_CHECKING:
    from engine.events import DownloadInfo
    from engine.fit.plan_records import FitPlan
    from engine.models.catalog import CatalogModel
    from engine.models.gguf_header import GgufHeader
    from engine.models.hub import RepoInfo
    from engine.models.hub_names import ModelSet
    from engine.models.links import ModelLink

_TABLE_MS = 250
#: the quantization whose header stands for all, in the order of trying: usual ones are likely to be sound
_HEADER_OF = ("Q4_K_M", "Q4_K_S", "Q5_K_M", "Q8_0", "MXFP4", "Q4_0")


class ModelPage(ModelPageParts):
    """Signals:
    load_requested(str): show how this file of the library would be loaded (its path).
    downloads_requested: show the downloads. download_started(DownloadInfo): one was put into the queue.
    """

    load_requested = Signal(str)
    downloads_requested = Signal()
    download_started = Signal(object)

    def __init__(self, desk: ModelDesk, fit: FitDesk, parent: QWidget | None = None) -> None:
        super().__init__(fit, parent)
        self._desk, self._fit = desk, fit
        self._model: CatalogModel | None = None
        self._repo = ""
        self._info: RepoInfo | None = None
        self._sets: list[ModelSet] = []
        self._subjects: list[Subject | None] = []
        self._n_ctx = 0
        self._number = 0
        self._plan_number = 0
        self._touched = False
        self._link: ModelLink | None = None
        self._table_timer = QTimer(self)
        self._table_timer.setSingleShot(True)
        self._table_timer.setInterval(_TABLE_MS)
        self._table_timer.timeout.connect(self._plan_rows)
        self.table.row_chosen.connect(self._on_row)
        self.table.action_requested.connect(self._on_action)
        self.table.clicked.connect(lambda _: self._set_touched())
        self.state.retry_requested.connect(lambda: self.ask_repo())
        self.state.token_entered.connect(self._on_token)
        self.card.clicked.connect(lambda: self.link_activated.emit(desk.hub.card_url(self._repo)))
        self.ask.clicked.connect(lambda: self.ask_repo())
        self.fit_panel.what_if.changed.connect(lambda _: self._table_timer.start())
        fit.machine_changed.connect(self._plan_rows)
        desk.library_changed.connect(self._mark_rows)
        desk.downloads.changed.connect(lambda _: self._mark_rows())
        desk.downloads.listed.connect(self._mark_rows)

    # ---- what is shown

    @property
    def repo(self) -> str:
        return self._repo

    def _begin(self, repo: str) -> None:
        self._number += 1
        self._repo, self._info, self._model = repo, None, None
        self._sets, self._subjects, self._touched, self._link = [], [], False, None
        self.state.clear()
        self.set_best("", "")
        self.show_content(False)
        self.ask.hide()
        self.fit_panel.set_subject(None)

    def show_catalog(self, model: CatalogModel) -> None:
        """A model of the catalogue, from what is known without a network."""
        self._begin(model.repo)
        self._model = model
        self._n_ctx = model.n_ctx_train
        facts = [
            f"{parameters(model.n_params)} parameters",
            f"{parameters(model.n_active)} active" if model.n_active else "",
            f"{model.shape.layers} layers" if model.shape else "",
            f"trained to {model.n_ctx_train:,} tokens",
        ]
        self.set_head(
            model.name, facts, f"{purposes(model)} · {licence_words(model.licence)} · {model.maker}", model.summary
        )
        if model.gated:
            self.gated.show()
        number = self._number

        def work() -> tuple[list[QuantRow], list[Subject | None]]:
            labels = sorted(model.quants, key=model.size_bytes, reverse=True)
            sizes = [model.size_bytes(label) for label in labels]
            rows = [make_row(label, label, size, model.n_params) for label, size in zip(labels, sizes, strict=True)]
            return rows, [subject_of(model, label) for label in labels]

        self._fit.run(work, lambda made: self._on_rows(number, *made), owner=self)
        self.set_note(
            "Sizes are computed from the model's shape; the repository has the exact ones and may hold more files.",
            ask=True,
        )

    def show_repo(self, repo: str) -> None:
        """A repository that the user found on the Hub: asks for its files."""
        self._begin(repo)
        self.set_head(repo.partition("/")[2], [], repo, "")
        self.ask_repo()

    def show_link(self, link: ModelLink, known: CatalogModel | None) -> None:
        """What a link names. It comes from outside, so the Hub is asked only when the user says so."""
        if known is not None:
            self.show_catalog(known)
        else:
            self._begin(link.repo)
            self.set_head(link.repo.partition("/")[2], [], link.repo, "")
            self.state.show_note(
                "A link named this repository",
                "Nothing is known of it on this computer, and the Hub was not asked yet.",
            )
            self.set_note("Asking the Hub connects to the network.", ask=True)
            self.note.show()
        self._link = link

    def ask_repo(self, then: Callable[[], None] | None = None) -> None:
        """Ask the Hub what the repository holds, over the network."""
        number = self._number
        self.ask.setEnabled(False)
        self.state.show_busy(f"Asking for the files of {self._repo}…")

        def done(info: RepoInfo) -> None:
            if number == self._number:
                self.ask.setEnabled(True)
                self.state.clear()
                self._on_info(info)
                if then is not None:
                    then()

        def failed(error: BaseException) -> None:
            if number == self._number:
                self.ask.setEnabled(True)
                self.state.show_error(error)

        self._desk.hub.repo(self._repo, done, failed)

    def _on_token(self, token: str) -> None:
        self._desk.hub.save_token(token, lambda _: self.ask_repo(), self.state.show_error)

    def _on_info(self, info: RepoInfo) -> None:
        self._info = info
        self._sets = sorted((item for item in info.sets if item.complete), key=lambda item: -item.size_bytes)
        self.gated.setVisible(info.gated)
        if not self._sets:
            self.show_content(False)
            self.state.show_note("No model to download", "This repository holds no complete GGUF model.")
            return
        if self._model is None:
            line = [info.repo, licence_words(info.license), f"{info.downloads:,} downloads"]
            self.set_head(self.title.text(), [], " · ".join(part for part in line if part), "")
        self.set_note(f"{len(self._sets)} quantizations at revision {info.revision_sha[:8]}.", ask=False)
        base = self._base_header()
        if base is not None:
            self._on_header(self._number, base)
            return
        rows = [make_row(set_key(item), item.label, item.size_bytes, 0, set_note(item)) for item in self._sets]
        self._show_rows(rows, [None] * len(rows))
        self.state.show_busy("Reading the header of one file…")
        number = self._number
        chosen = next((s for label in _HEADER_OF for s in self._sets if s.label == label), self._sets[-1])

        def failed(error: BaseException) -> None:
            if number == self._number:
                self.state.show_error(error, what_stays="The files can be downloaded, but not judged.")
                self._show_rows([replace(row, asked=False) for row in self.table.table.rows], self._subjects)

        self._desk.hub.header(info, chosen, lambda header: self._on_header(number, header), failed)

    def _base_header(self) -> GgufHeader | None:
        """The catalogue's own shape serves as well as a header of the repository."""
        return self._model.header(self._model.quant) if self._model is not None else None

    def _on_header(self, number: int, header: GgufHeader) -> None:
        if number != self._number:
            return
        self.state.clear()
        sets = list(self._sets)

        def work() -> tuple[list[QuantRow], list[Subject | None], tuple[int, int, int]]:
            from engine.fit.placement import prepare

            model = prepare(header)
            n_params = sum(tensor.n_elements for tensor in model.tensors)
            rows = [make_row(set_key(item), item.label, item.size_bytes, n_params, set_note(item)) for item in sets]
            subjects: list[Subject | None] = [requantized(header, item.label, item.size_bytes) for item in sets]
            return rows, subjects, (n_params, len(model.shape.layers), model.shape.n_ctx_train)

        def done(made: tuple[list[QuantRow], list[Subject | None], tuple[int, int, int]]) -> None:
            rows, subjects, (n_params, n_layers, n_ctx) = made
            self._n_ctx = n_ctx
            if self._model is None and number == self._number:
                facts = [f"{parameters(n_params)} parameters", f"{n_layers} layers", f"trained to {n_ctx:,} tokens"]
                self.set_facts(facts)
            self._on_rows(number, rows, subjects)

        self._fit.run(work, done, owner=self)

    # ---- rows and their plans

    def _on_rows(self, number: int, rows: list[QuantRow], subjects: list[Subject | None]) -> None:
        if number == self._number:
            self._show_rows(rows, subjects)
            self._plan_rows()

    def _show_rows(self, rows: Sequence[QuantRow], subjects: list[Subject | None]) -> None:
        kept = self.table.current_row
        self._subjects = subjects
        self.table.table.set_rows([self._marked(row) for row in rows])
        self.show_content(True)
        place = self.table.table.place_of(kept.key) if kept is not None else -1
        linked = self._linked_place(rows)
        if linked >= 0:
            place = linked
        for label in (kept.label if kept is not None else "", "Q4_K_M"):
            if place < 0:
                place = next((p for p, row in enumerate(rows) if row.label == label), -1)
        self.table.choose(max(0, place))

    def _linked_place(self, rows: Sequence[QuantRow]) -> int:
        """The row that the link named, once: after that the user's choice counts; -1 if there is none."""
        link = self._link
        if link is None or not (link.file or link.quant) or self._touched:
            return -1
        by_file = (place for place, row in enumerate(rows) if row.key == link.file)
        by_label = (place for place, row in enumerate(rows) if row.label == link.quant)
        place = next(by_file, -1) if link.file and self._info is not None else next(by_label, -1)
        if place < 0 and self._info is not None:
            self.set_note(f"{self.note.text()} It has no {link.file or link.quant}, which the link named.", ask=False)
        self._touched = place >= 0
        return place

    def _plan_rows(self) -> None:
        """Judge every row, with what was chosen below the table but for the layers."""
        if not self._subjects or self._fit.machine is None:
            return
        self._plan_number += 1
        number = self._plan_number
        places = [place for place, subject in enumerate(self._subjects) if subject is not None]
        for place in set(range(len(self._subjects))) - set(places):
            self.table.table.update_row(place, asked=False)
        chosen = self.fit_panel.what_if.wishes
        n_ctx = chosen.n_ctx or min(USUAL_CONTEXT, self._n_ctx or USUAL_CONTEXT)
        wishes = replace(chosen, n_ctx=n_ctx, n_gpu_layers=None, n_cpu_moe=None, tensor_split=())
        left = len(places)

        def done(which: int, plan: FitPlan | None) -> None:
            nonlocal left
            if number == self._plan_number:
                self.table.table.update_row(places[which], plan=plan, asked=False)
                left -= 1
                if not left:
                    self._judge(wishes)

        self._fit.plan_each([s for s in self._subjects if s is not None], wishes, done)

    def _judge(self, wishes: Wishes) -> None:
        rows = self.table.table.rows
        best = choose(rows)
        for place in range(len(rows)):
            self.table.table.update_row(place, best=place == best.place)
        contexts = {row.plan.needs.n_ctx for row in rows if row.plan is not None}
        machine = self._fit.machine
        where = "GPU memory" if machine is not None and machine.devices else "Memory"
        self.table.table.set_heading(f"{where} at {contexts.pop():,} tokens" if len(contexts) == 1 else where)
        name = f"Best for this machine: {rows[best.place].label}." if best.place >= 0 else "Too large for this machine."
        self.set_best(name, best.words)
        if not self._touched and best.place >= 0:
            self.table.choose(best.place)
        elif self.fit_panel.subject is None:
            self._on_row(self.table.currentIndex().row())

    def _set_touched(self) -> None:
        self._touched = True

    def _on_row(self, place: int) -> None:
        if self.table.hasFocus():
            self._touched = True
        subject = self._subjects[place] if 0 <= place < len(self._subjects) else None
        self.fit_panel.set_subject(subject, keep_wishes=self.fit_panel.subject is not None)

    def _marked(self, row: QuantRow) -> QuantRow:
        """The row with what is known of its file: here, on its way, or neither."""
        download = self._desk.downloads.of(self._repo, row.label)
        percent = permille(download) // 10 if download is not None else None
        return replace(row, here=self._desk.here(self._repo, row.label, row.key) is not None, percent=percent)

    def _mark_rows(self) -> None:
        for place, row in enumerate(self.table.table.rows):
            marked = self._marked(row)
            self.table.table.update_row(place, here=marked.here, percent=marked.percent)

    # ---- downloading

    def _on_action(self, place: int) -> None:
        row = self.table.table.row_at(place)
        if row is None:
            return
        here = self._desk.here(self._repo, row.label, row.key)
        if here is not None:
            self.load_requested.emit(here.path)
        elif row.percent is not None:
            self.downloads_requested.emit()
        elif self._info is None:
            self.ask_repo(lambda: self._download(row.label))
        else:
            self._download(row.label, row.key)

    def _download(self, label: str, key: str = "") -> None:
        from engine.models.hub import find_set

        info = self._info
        item = next((s for s in self._sets if set_key(s) == key), None) or find_set(self._sets, label)
        if info is None:
            return
        if item is None:
            self.state.show_note(
                f"{label} is not there", "The repository holds other files than expected. Choose one of those below."
            )
            return
        self._desk.hub.download(info, item, self._on_added, self.state.show_error)

    def _on_added(self, download: DownloadInfo) -> None:
        self._mark_rows()
        self.download_started.emit(download)
