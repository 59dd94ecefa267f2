"""A machine, a hub and a window for tests of the models' views."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from desktop import fit_sources
from engine.errors import EngineError
from engine.events import DownloadInfo
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine
from engine.models.catalog import load
from engine.models.hub import HubFile, HubModel, RepoInfo, SearchPage
from engine.models.hub_names import model_sets

GIB = 1024**3
LAPTOP = Machine(
    (DeviceSpec("CUDA0", "gpu", int(7.6 * GIB), 8 * GIB, description="RTX 4070 Laptop"),),
    int(21.3 * GIB),
    int(31.2 * GIB),
    8,
    {"CUDA0": 256e9},
)
NO_GPU = Machine((), int(12 * GIB), 16 * GIB, 8, {"Host": 40e9})
TWO_GPUS = Machine(
    (DeviceSpec("CUDA0", "gpu", int(7.6 * GIB), 8 * GIB), DeviceSpec("CUDA1", "gpu", int(5.6 * GIB), 6 * GIB)),
    int(21.3 * GIB),
    int(31.2 * GIB),
    8,
)


def use_machine(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    """Every window of this test runs on this machine."""
    monkeypatch.setattr(fit_sources.EngineFitter, "machine", lambda self: machine)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def repo_info(repo: str = "maker/Model-GGUF", labels: tuple[str, ...] = ("Q8_0", "Q5_K_M", "Q4_K_M")) -> RepoInfo:
    """A repository whose files are those of Qwen3 8B."""
    model = load().find("qwen3-8b")
    assert model is not None
    files = tuple(HubFile(f"Model-{label}.gguf", model.size_bytes(label), "0" * 64) for label in labels)
    return RepoInfo(repo=repo, revision_sha="a" * 40, files=files, license="apache-2.0", downloads=1234)


class StandInDownloads:
    """The hub's side of the library, scripted. `answers` is asked for each search; errors are raised by the futures."""

    def __init__(self, search: Callable[[str, str], SearchPage | EngineError] | None = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._search = search or (lambda query, cursor: SearchPage(()))
        self.info_answer: RepoInfo | EngineError = repo_info()
        self.header_answer: Any = load().find("qwen3-8b").header("Q4_K_M")  # type: ignore[union-attr]

    def search(self, query: str = "", *, sort: str = "", limit: int = 30, cursor: str = "") -> Future[Any]:
        self.asked.append(("search", query, cursor))
        return done(self._search(query, cursor))

    def info(self, repo: str, revision: str = "main") -> Future[Any]:
        self.asked.append(("info", repo))
        return done(self.info_answer)

    def header(self, repo: str, revision: str, path: str, sha256: str | None = None) -> Future[Any]:
        self.asked.append(("header", path))
        return done(self.header_answer)

    def list(self) -> Future[Any]:
        return done([])

    def add(self, info: RepoInfo, item: Any, extras: Any = ()) -> Future[Any]:
        self.asked.append(("add", info.repo, item.label))
        return done(DownloadInfo("d1", info.repo, item.label, "queued", 0, item.size_bytes))

    def _note(self, action: str, download_id: str) -> Future[Any]:
        self.asked.append((action, download_id))
        return done(None)

    def pause(self, download_id: str) -> Future[Any]:
        return self._note("pause", download_id)

    def resume(self, download_id: str) -> Future[Any]:
        return self._note("resume", download_id)

    def retry(self, download_id: str) -> Future[Any]:
        return self._note("retry", download_id)

    def cancel(self, download_id: str) -> Future[Any]:
        return self._note("cancel", download_id)

    def stop(self) -> None:
        pass


def hits(*names: str) -> tuple[HubModel, ...]:
    return tuple(HubModel(name, author=name.partition("/")[0], downloads=10, n_params=8 * 10**9) for name in names)


def open_models(one: Any, downloads: StandInDownloads | None = None) -> Any:
    """The models' view of a shell, with the catalogue judged."""
    if downloads is not None:
        one.app.engine.library.downloads.stop()
        one.app.engine.library.downloads = downloads
    view = one.window.show_models()
    one.wait(lambda: bool(view.discover._plans) and view.discover._waiting == 0)
    return view


def choose(one: Any, view: Any, key: str) -> None:
    """Click a row of the discover list."""
    index = view.discover.list.rows.index_of(key)
    assert index.isValid(), key
    view.discover.list.scrollTo(index)
    view.discover.list.clicked.emit(index)
    one.wait(lambda: view.model_page.fit_panel.plan is not None and view.model_page.best_text.text() != "")


__all__ = ["LAPTOP", "NO_GPU", "TWO_GPUS", "StandInDownloads", "hits", "model_sets", "open_models", "repo_info"]
