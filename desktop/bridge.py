"""Engine threads meet the GUI thread here, and nowhere else.

The engine calls back from its own threads. What it says is appended to a locked queue, and one queued signal wakes
the GUI thread for the whole batch, so that 200 tokens a second do not become 200 postings behind each other. Futures
are delivered through the same queue: a result is never seen before the events that came before it. Payloads travel
as Python objects, so byte counts above 2 GiB stay what they are.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, Qt, Signal
from shiboken6 import isValid

from engine import events

if TYPE_CHECKING:
    from engine.service import Engine

T = TypeVar("T")
#: seconds one batch may take before it lets the event loop turn
_BATCH_S = 0.008


class EngineBridge(QObject):
    """Signals for engine events, and delivery of futures on the GUI thread.

    Every signal carries the engine's record of that name (`events.ModelState`, ...).
    """

    model_state_changed = Signal(object)
    worker_exited = Signal(object)
    memory_changed = Signal(object)
    log_line = Signal(object)
    notice = Signal(object)
    resumed = Signal(object)
    download_changed = Signal(object)
    library_changed = Signal(object)
    verify_progress = Signal(object)
    sampled = Signal(object)
    kv_map_changed = Signal(object)
    chat_list_changed = Signal(object)
    chat_changed = Signal(object)
    message_added = Signal(object)
    message_changed = Signal(object)
    generation_started = Signal(object)
    generation_prompt = Signal(object)
    generation_step = Signal(object)
    generation_finished = Signal(object)
    _wake = Signal()

    def __init__(self, engine: Engine, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = threading.Lock()
        self._queue: deque[events.Event | Callable[[], None]] = deque()
        self._awake = False
        self._closed = False
        self._emitters: dict[type[events.Event], Callable[[Any], None]] = {
            events.ModelState: self.model_state_changed.emit,
            events.WorkerExited: self.worker_exited.emit,
            events.Memory: self.memory_changed.emit,
            events.Log: self.log_line.emit,
            events.Notice: self.notice.emit,
            events.Resumed: self.resumed.emit,
            events.DownloadChanged: self.download_changed.emit,
            events.LibraryChanged: self.library_changed.emit,
            events.VerifyProgress: self.verify_progress.emit,
            events.Sampled: self.sampled.emit,
            events.KvMap: self.kv_map_changed.emit,
            events.ChatListChanged: self.chat_list_changed.emit,
            events.ChatChanged: self.chat_changed.emit,
            events.MessageAdded: self.message_added.emit,
            events.MessageChanged: self.message_changed.emit,
            events.GenerationStarted: self.generation_started.emit,
            events.GenerationPrompt: self.generation_prompt.emit,
            events.GenerationStep: self.generation_step.emit,
            events.GenerationFinished: self.generation_finished.emit,
        }
        self._wake.connect(self._drain, Qt.ConnectionType.QueuedConnection)
        self._unsubscribe = engine.subscribe(self._push)

    def close(self) -> None:
        """Deliver nothing more. Idempotent."""
        if not self._closed:
            self._closed = True
            self._unsubscribe()
            with self._lock:
                self._queue.clear()

    def run(
        self,
        future: Future[T],
        on_success: Callable[[T], None] | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        *,
        owner: QObject | None = None,
    ) -> None:
        """Deliver the future's result on the GUI thread.

        Args:
            on_success: called with the result.
            on_error: called with the exception. Without it a failure goes to `sys.excepthook`: it is never silent.
            owner: nothing is called when this object is gone by then.
        """

        def deliver() -> None:
            if owner is not None and not isValid(owner):
                return
            try:
                result = future.result()
            except CancelledError:
                return
            except Exception as error:
                if on_error is not None:
                    on_error(error)
                else:
                    sys.excepthook(type(error), error, error.__traceback__)
                return
            if on_success is not None:
                on_success(result)

        future.add_done_callback(lambda _: self._push(deliver))

    def post(self, work: Callable[[], None]) -> None:
        """Have `work` run on the GUI thread, after what came before it. May be called from any thread."""
        self._push(work)

    def _push(self, item: events.Event | Callable[[], None]) -> None:
        """Called from any thread."""
        if self._closed:
            return
        with self._lock:
            self._queue.append(item)
            if self._awake:
                return
            self._awake = True
        try:
            self._wake.emit()
        except RuntimeError:  # the QObject is gone: the program is ending
            self._closed = True

    def _drain(self) -> None:
        end = time.perf_counter() + _BATCH_S
        while not self._closed:
            with self._lock:
                if not self._queue:
                    self._awake = False
                    return
                item = self._queue.popleft()
            try:
                self._deliver(item)
            except Exception as error:  # a bug in one receiver must not stop the others
                sys.excepthook(type(error), error, error.__traceback__)
            if time.perf_counter() > end:
                self._wake.emit()  # still awake: the rest comes after the loop has turned
                return

    def _deliver(self, item: events.Event | Callable[[], None]) -> None:
        if isinstance(item, events.Event):
            emit = self._emitters.get(type(item))
            if emit is not None:
                emit(item)
        else:
            item()
