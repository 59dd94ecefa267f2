"""Work that may wait for a disk runs on a small pool of threads; its result comes back on the GUI thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from PySide6.QtCore import QObject

from desktop.bridge import EngineBridge

T = TypeVar("T")


class Tasks:
    """Runs functions off the GUI thread, at most two at a time."""

    def __init__(self, bridge: EngineBridge) -> None:
        self._bridge = bridge
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="inglenook-task")
        self._closed = False

    def run(
        self,
        work: Callable[[], T],
        on_success: Callable[[T], None] | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        *,
        owner: QObject | None = None,
    ) -> None:
        """Run `work` on a thread; then call on the GUI thread, as `EngineBridge.run` does."""
        if self._closed:
            return
        future: Future[T] = self._pool.submit(work)
        self._bridge.run(future, on_success, on_error, owner=owner)

    def close(self, *, wait: bool = True) -> None:
        """Take no more work; finish what runs, drop what waits."""
        self._closed = True
        self._pool.shutdown(wait=wait, cancel_futures=True)
