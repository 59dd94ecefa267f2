"""The catalogue, the Hub and the downloads as the window's views ask for them.

Nothing here connects anywhere unless the user searched, opened a repository or pressed Download.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from desktop.models.downloads import DownloadList
from desktop.tasks import Tasks
from engine.events import DownloadChanged, DownloadInfo

if TYPE_CHECKING:
    from engine.models.catalog import CatalogModel
    from engine.models.gguf_header import GgufHeader
    from engine.models.hub import RepoInfo, SearchPage
    from engine.models.hub_names import ModelSet
    from engine.service import Engine

T = TypeVar("T")
Failed = Callable[[BaseException], None]


class HubDesk(QObject):
    """Signals:
    failed(object): an error that no view has asked to be told of.
    """

    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._tasks = tasks
        self.downloads = DownloadList(self)
        bridge.download_changed.connect(self._on_download)

    def _ask(self, work: Callable[[], Future[T]], done: Callable[[T], None] | None, failed: Failed | None) -> None:
        """Call something that gives a future; its first call may import much, so it happens on a thread."""
        told = failed or self.failed.emit

        def given(future: Future[T]) -> None:
            self._bridge.run(future, done, told, owner=self)

        self._tasks.run(work, given, told, owner=self)

    # ---- the catalogue and the Hub

    def catalog(self, done: Callable[[list[CatalogModel]], None]) -> None:
        """The list that ships with the program; no network."""
        self._tasks.run(lambda: list(self._engine.library.catalog().models), done, self.failed.emit, owner=self)

    def search(self, query: str, cursor: str, done: Callable[[SearchPage], None], failed: Failed) -> None:
        """One page of the Hub's answer."""
        self._ask(lambda: self._engine.library.downloads.search(query, cursor=cursor), done, failed)

    def repo(self, name: str, done: Callable[[RepoInfo], None], failed: Failed) -> None:
        """What a repository holds."""
        self._ask(lambda: self._engine.library.downloads.info(name), done, failed)

    def header(self, info: RepoInfo, item: ModelSet, done: Callable[[GgufHeader], None], failed: Failed) -> None:
        """The header of a file that is not here, by range."""
        first = item.files[0]
        self._ask(
            lambda: self._engine.library.downloads.header(info.repo, info.revision_sha, first.path, first.sha256),
            done,
            failed,
        )

    def card_url(self, repo: str) -> str:
        """Where the model card of a repository is read."""
        from engine.models.hub import DEFAULT_ENDPOINT

        return f"{DEFAULT_ENDPOINT}/{repo}"

    def save_token(self, token: str, done: Callable[[None], None], failed: Failed) -> None:
        """Keep the access token in the system's key store, for this hub only."""

        def work() -> None:
            from engine.models import hub_token
            from engine.models.hub import Hub

            hub_token.save(Hub().endpoint, token)

        self._tasks.run(work, done, failed, owner=self)

    # ---- downloads

    def list_downloads(self) -> None:
        """The queue as it was left; no network."""
        self._ask(lambda: self._engine.library.downloads.list(), self.downloads.set_all, None)

    def download(self, info: RepoInfo, item: ModelSet, done: Callable[[DownloadInfo], None], failed: Failed) -> None:
        """Put a model into the queue."""

        def added(download: DownloadInfo) -> None:
            if self.downloads.get(download.id) is None:
                self.downloads.put(download)
            done(download)

        self._ask(lambda: self._engine.library.downloads.add(info, item), added, failed)

    def do(self, action: str, download_id: str) -> None:
        """One of "pause", "resume", "cancel", "retry", "remove"."""
        queue = self._engine.library.downloads
        method = {"pause": queue.pause, "resume": queue.resume, "retry": queue.retry}.get(action, queue.cancel)

        def work() -> Future[Any]:
            return method(download_id)

        def done(_: object) -> None:
            if action in ("cancel", "remove"):
                self.downloads.remove(download_id)

        self._ask(work, done, None)

    def _on_download(self, event: DownloadChanged) -> None:
        self.downloads.put(event.download)

    def free_space(self, done: Callable[[int], None]) -> None:
        """Bytes free where downloads go."""
        folder = self._engine.library.folder

        def work() -> int:
            place = folder
            while not place.exists() and place != place.parent:
                place = place.parent
            return shutil.disk_usage(place).free

        self._tasks.run(work, done, lambda _: done(-1), owner=self)
