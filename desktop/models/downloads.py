"""Downloads in words, and how many are under way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop import figures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.events import DownloadInfo

_ENDED = frozenset(("done", "failed"))
#: what can be done in each state
ACTIONS: dict[str, tuple[str, ...]] = {
    "queued": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "stalled": ("pause", "cancel"),
    "verifying": ("cancel",),
    "paused": ("resume", "cancel"),
    "failed": ("retry", "cancel"),
    "done": ("show", "remove"),
}


def permille(info: DownloadInfo) -> int:
    """Progress in thousandths, 0 where the size is not known. Byte counts never reach a Qt widget: they are larger than
    its numbers."""
    if info.bytes_total <= 0:
        return 0
    return max(0, min(1000, info.bytes_done * 1000 // info.bytes_total))


def speed_words(info: DownloadInfo) -> str:
    """ "12.4 MiB/s"; a dash where nothing comes."""
    speed = info.speed_bps
    if info.status != "running" or speed is None or not math.isfinite(speed) or speed <= 0:
        return figures.DASH
    return f"{figures.size(round(speed))}/s" if speed >= 1024**2 else f"{speed / 1024:.0f} KiB/s"


def left_words(info: DownloadInfo) -> str:
    """ "3 min left"; a dash where it cannot be told."""
    left = info.eta_s
    if info.status != "running" or left is None or not math.isfinite(left) or left < 0:
        return figures.DASH
    if left < 60:
        return f"{max(1, round(left))} s left"
    if left < 3600:
        return f"{round(left / 60)} min left"
    hours, rest = divmod(round(left / 60), 60)
    return f"{hours} h {rest:02d} min left"


def status_words(info: DownloadInfo) -> str:
    """One line: how far, how fast, how long."""
    sizes = f"{figures.size(info.bytes_done)} of {figures.size(info.bytes_total)}" if info.bytes_total else ""
    match info.status:
        case "queued":
            return f"waiting · {figures.size(info.bytes_total)}"
        case "running":
            return " · ".join(part for part in (sizes, speed_words(info), left_words(info)) if part)
        case "stalled":
            return f"{sizes} · nothing comes at the moment · {figures.DASH}"
        case "paused":
            return f"{sizes} · paused"
        case "verifying":
            return f"{figures.size(info.bytes_total)} · checking the SHA-256"
        case "failed":
            return f"{sizes} · stopped"
    return f"{figures.size(info.bytes_total)} · complete and checked"


class DownloadList(QObject):
    """All downloads, newest first. The one place that views ask.

    Signals:
        changed(str): one of them is another now (its id). listed: some came or went.
        finished(object): one became complete (its DownloadInfo).
    """

    changed = Signal(str)
    listed = Signal()
    finished = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._infos: dict[str, DownloadInfo] = {}

    @property
    def infos(self) -> list[DownloadInfo]:
        return list(reversed(self._infos.values()))

    def get(self, download_id: str) -> DownloadInfo | None:
        return self._infos.get(download_id)

    @property
    def n_active(self) -> int:
        """For the badge: under way, waiting, paused or failed."""
        return sum(1 for info in self._infos.values() if info.status != "done")

    @property
    def bytes_left(self) -> int:
        """What is still to come of all that are not ended."""
        return sum(i.bytes_total - i.bytes_done for i in self._infos.values() if i.status not in _ENDED)

    def set_all(self, infos: Iterable[DownloadInfo]) -> None:
        """Take the queue as an earlier run left it."""
        new = {info.id: info for info in infos}
        new |= self._infos  # what events said meanwhile is newer
        known = list(new) == list(self._infos)
        self._infos = new
        if not known:
            self.listed.emit()
        for download_id in new:
            self.changed.emit(download_id)

    def put(self, info: DownloadInfo) -> None:
        """Take what an event says. The last event of a cancelled download takes it off the list."""
        if info.status == "failed" and info.error is not None and info.error.code == "cancelled":
            self.remove(info.id)
            return
        before = self._infos.get(info.id)
        self._infos[info.id] = info
        if before is None:
            self.listed.emit()
        self.changed.emit(info.id)
        if info.status == "done" and (before is None or before.status != "done"):
            self.finished.emit(info)

    def remove(self, download_id: str) -> None:
        if self._infos.pop(download_id, None) is not None:
            self.listed.emit()

    def of(self, repo: str, label: str) -> DownloadInfo | None:
        """The download of one quantization, if there is one that has not ended."""
        return next((i for i in self.infos if (i.repo, i.label) == (repo, label) and i.status != "done"), None)
