"""Ctrl+C, a polite kill and a closed terminal end the program as closing the window does, also while it starts.

An exception in the middle of the start would end in a traceback, or be swallowed by Qt's bindings, so a signal that
comes before there is a window is only remembered. The second of its kind ends the program at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

_KINDS = ("SIGINT", "SIGTERM", "SIGHUP")
_asked = False
_end: Callable[[], None] | None = None


def _on_signal(number: int, _: object) -> None:
    global _asked
    _asked = True
    signal.signal(number, signal.SIG_DFL)
    if _end is not None:
        _end()


def catch() -> None:
    """From now on signals are remembered. Those that are ignored (nohup) stay so. Main thread."""
    for name in _KINDS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def on_end(end: Callable[[], None]) -> None:
    """Call `end` when a signal comes, and now if one has come. It is called between two steps of Python: it may do
    no more than post."""
    global _end
    _end = end
    if _asked:
        end()
