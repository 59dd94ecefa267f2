"""Python's collector of cyclic garbage, kept to the GUI thread and to moments when nobody waits.

Left to itself it runs in whichever thread makes the next object. A full collection of this program takes 50 ms and
more, in the middle of an answer, and one that runs in an engine thread may destroy a widget there, which Qt forbids.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

_INTERVAL_MS = 1_000
#: seconds a full collection waits for a quiet moment at most
_LONGEST_WAIT_S = 120.0


class GarbageCollector(QObject):
    """Collects what is young every second if there is enough of it, and everything only while nothing is written.

    Args:
        busy: tells whether an answer is being written.
    """

    def __init__(self, busy: Callable[[], bool], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._busy = busy
        self._full_s = time.monotonic()
        self._ended = False
        self._timer = QTimer(self)
        self._timer.setInterval(_INTERVAL_MS)
        self._timer.timeout.connect(self.look)

    def start(self) -> None:
        """Take over. What has been made so far lives as long as the program and is never looked at again."""
        if self._ended:
            return
        gc.freeze()
        gc.disable()
        self._timer.start()

    def stop(self) -> None:
        """Leave it to Python again, for good."""
        self._ended = True
        if self._timer.isActive():
            self._timer.stop()
            gc.unfreeze()
            gc.enable()

    def look(self) -> None:
        """Collect what is due."""
        young, middle, old = gc.get_count()
        most = gc.get_threshold()
        if old > most[2] and (not self._busy() or time.monotonic() - self._full_s > _LONGEST_WAIT_S):
            gc.collect()
            self._full_s = time.monotonic()
        elif middle > most[1]:
            gc.collect(1)
        elif young > most[0]:
            gc.collect(0)
