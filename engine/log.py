"""Logging: one tree of loggers, a ring in memory for the log view, and a rotating file.

Loggers are named ``inglenook.<category>`` (`get("worker")`). Two rules hold everywhere:

- The text of messages, prompts and answers never goes into a log, at no level. Log what happened and how large
  it was: `sized(text)` gives "812 characters". A log can then be sent to somebody without being read first.
- Logging never raises and never writes to the terminal: a full disk or a read-only folder costs the
  file, not the program.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

ROOT = "inglenook"
#: lines kept in memory
RING_LINES = 2_000
#: characters kept of one line; native code can print very long ones
MAX_LINE_CHARS = 4_000
FILE_NAME = "inglenook.log"
FILE_MAX_BYTES = 2 * 1024 * 1024
FILE_BACKUPS = 3

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


class _OneLineFormatter(logging.Formatter):
    """Formats a record; a line that is too long is cut, and control characters cannot reach a terminal or the view."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        text = "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text)
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[:MAX_LINE_CHARS]} [{len(text) - MAX_LINE_CHARS} characters cut]"
        return text


class Ring(logging.Handler):
    """The last `RING_LINES` log lines, newest last. Any thread may read it."""

    def __init__(self, n_lines: int = RING_LINES) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=n_lines)
        self._guard = threading.Lock()
        self._listeners: list[Callable[[str], None]] = []
        self.setFormatter(_OneLineFormatter(_FORMAT, _TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # a wrong format string must not stop the work that wanted to log
            line = f"{record.levelname} {record.name}: a log record could not be formatted"
        with self._guard:
            self._lines.append(line)
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                listener(line)
            except Exception:
                self.unsubscribe(listener)

    def lines(self) -> list[str]:
        with self._guard:
            return list(self._lines)

    def clear(self) -> None:
        with self._guard:
            self._lines.clear()

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each new line, from the thread that logs. One that raises is dropped."""
        with self._guard:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        with self._guard:
            if listener in self._listeners:
                self._listeners.remove(listener)


class _File(RotatingFileHandler):
    """A rotating file that gives up in silence when it cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - name given by logging
        logger = logging.getLogger(ROOT)
        if self in logger.handlers:
            logger.removeHandler(self)
            try:
                self.close()
            except (OSError, ValueError):  # what could not be written cannot be flushed either
                pass
            logger.warning("the log file cannot be written any more; lines are kept in memory only")


#: the one ring of the program; it works from the first import on
ring = Ring()

_root = logging.getLogger(ROOT)
_root.addHandler(ring)
if _root.level == logging.NOTSET:
    _root.setLevel(logging.INFO)


def setup(log_dir: Path | None, level: int | str = "INFO") -> Path | None:
    """Set the level and the file of the log. May be called again; the last call holds.

    Args:
        log_dir: folder of `inglenook.log` (made if missing); None logs to memory only.
        level: a name or number of the logging module, in any case ("debug").

    Returns:
        the file in use, None without one (also where the folder cannot be written: that is logged, not raised).
    """
    for handler in [h for h in _root.handlers if isinstance(h, _File)]:
        _root.removeHandler(handler)
        handler.close()
    _root.setLevel(level.upper() if isinstance(level, str) else level)
    if log_dir is None:
        return None
    path = log_dir / FILE_NAME
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        file = _File(path, maxBytes=FILE_MAX_BYTES, backupCount=FILE_BACKUPS, encoding="utf-8", errors="replace")
    except OSError as error:
        _root.warning("no log file: %s", error.strerror or type(error).__name__)
        return None
    file.setFormatter(_OneLineFormatter(_FORMAT, _TIME_FORMAT))
    _root.addHandler(file)
    return path


def get(category: str) -> logging.Logger:
    """The logger of a category: "app", "worker", "model", "chat", "store", "settings", "gui"..."""
    return logging.getLogger(f"{ROOT}.{category}")


def sized(text: str | bytes | None) -> str:
    """What a log may say of a message: its size, never its words."""
    if text is None:
        return "nothing"
    return f"{len(text)} {'characters' if isinstance(text, str) else 'bytes'}"
