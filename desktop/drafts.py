"""Texts that were typed and not sent yet, one per chat, kept on disk so that nothing typed is lost."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from desktop.tasks import Tasks
from engine.errors import EngineError
from engine.paths import atomic_write, free_name, time_stamp

_log = logging.getLogger("inglenook.desktop")
SAVE_DELAY_MS = 1500
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Draft:
    """An unsent message: what stands in the editor, and the pasted blocks beside it."""

    text: str = ""
    blocks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.blocks)


class Drafts(QObject):
    """Drafts by chat id; 0 is the chat that does not exist yet. Saved a moment after each change."""

    def __init__(self, path: Path, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._tasks = tasks
        self._drafts: dict[int, Draft] = {}
        self._changed = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_DELAY_MS)
        self._timer.timeout.connect(lambda: tasks.run(self.save, on_error=self._failed))

    def read(self) -> dict[int, Draft]:
        """The drafts on disk; for a background thread.

        A file that cannot be used, damaged or of a newer version, counts as empty; it is kept under another name, so
        that the next save does not cost what was typed there.
        """
        try:
            if self._path.stat().st_size > MAX_BYTES:
                raise ValueError("too long")
            data = json.loads(self._path.read_text(encoding="utf-8"))
            return {int(k): Draft(str(v["text"]), tuple(map(str, v["blocks"]))) for k, v in data.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            _log.warning("drafts cannot be read: %s", error)
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            kept = free_name(self._path.with_name(f"{self._path.name}.unread-{time_stamp()}"))
            _log.warning("drafts cannot be read (%s), kept as %s", error, kept.name)
            with suppress(OSError):
                self._path.rename(kept)
            return {}

    def add(self, stored: dict[int, Draft]) -> None:
        """Take what was on disk, where nothing newer was typed."""
        self._drafts = {**stored, **self._drafts}

    def get(self, chat_id: int | None) -> Draft:
        return self._drafts.get(chat_id or 0, Draft())

    def put(self, chat_id: int | None, draft: Draft) -> None:
        """Remember a draft; an empty one is forgotten."""
        key = chat_id or 0
        if self._drafts.get(key, Draft()) == draft:
            return
        if draft:
            self._drafts[key] = draft
        else:
            self._drafts.pop(key, None)
        self._changed = True
        self._timer.start()

    def save(self) -> None:
        """Write to disk if something changed. Not for the GUI thread.

        Raises:
            StorageFailed, DiskFull
        """
        if not self._changed:
            return
        self._changed = False
        data = {str(key): asdict(draft) for key, draft in list(self._drafts.items())}
        try:
            atomic_write(self._path, json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
        except EngineError:
            self._changed = True
            raise

    def _failed(self, error: BaseException) -> None:
        _log.warning("drafts cannot be saved: %s", error)
