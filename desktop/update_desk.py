"""New versions: asks when the user wishes it or has allowed it, and tells. Nothing else ever connects for it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge import EngineBridge
from desktop.errors import describe, sentences
from engine.updates import Update

if TYPE_CHECKING:
    from desktop.widgets.toast import Toast
    from engine.service import Engine

#: after the start, then every hour: whether it is due. The engine says so, from the settings alone
FIRST_LOOK_MS = 20_000
LOOK_MS = 3_600_000


class UpdateDesk(QObject):
    """Signals:
    changed: `words`, `update` or `is_asking` is another now.
    """

    changed = Signal()

    def __init__(self, engine: Engine, bridge: EngineBridge, toast: Toast, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self._bridge, self._toast = engine, bridge, toast
        self._problem = ""
        self._told = ""
        self.is_asking = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._look)

    def start(self) -> None:
        self._timer.start(FIRST_LOOK_MS)

    def stop(self) -> None:
        self._timer.stop()

    @property
    def update(self) -> Update | None:
        """The newer version, if one is known."""
        known = self._engine.updates.known
        return known if known is not None and known.is_newer else None

    @property
    def words(self) -> str:
        """How things stand, in one or two sentences."""
        updates = self._engine.updates
        if self.is_asking:
            return f"Asking {updates.host} …"
        if self._problem:
            return self._problem
        known = updates.known
        if not updates.feed:
            return "This copy was built without an address to ask for new versions."
        if known is None or not updates.asked_s:
            return "Nobody was asked for a new version yet."
        if known.is_newer:
            day = f" of {known.released}" if known.released else ""
            return f"Inglenook {known.latest}{day} is out."
        return f"This is the newest version, as {known.host} said {_ago(time.time() - updates.asked_s)}."

    def ask(self) -> None:
        """Ask now; the user wishes it."""
        self._wait_for(self._engine.updates.check(), by_wish=True)

    def _look(self) -> None:
        self._timer.start(LOOK_MS)
        future = self._engine.updates.check_if_due()
        if future is not None:
            self._wait_for(future, by_wish=False)

    def _wait_for(self, future: Future[Update], *, by_wish: bool) -> None:
        self.is_asking, self._problem = True, ""
        self.changed.emit()

        def found(update: Update) -> None:
            self.is_asking = False
            self.changed.emit()
            if update.is_newer and not by_wish and self._told != update.latest:
                self._told = update.latest
                self._toast.show_message(f"Inglenook {update.latest} is out. The settings lead to it.")

        def failed(error: BaseException) -> None:
            self.is_asking = False
            words = describe(error)
            if by_wish:  # who did not ask is not told that nothing came of it
                self._problem = sentences(words.text, _reason(error), words.hint)
            self.changed.emit()

        self._bridge.run(future, found, failed, owner=self)


def _reason(error: BaseException) -> str:
    reason = str(getattr(error, "details", {}).get("reason", ""))
    return reason[:1].upper() + reason[1:]


def _ago(seconds: float) -> str:
    """Roughly; a clock that was set back says "just now"."""
    for size, one, many in ((86_400, "a day", "days"), (3_600, "an hour", "hours"), (60, "a minute", "minutes")):
        n = int(seconds // size)
        if n >= 1:
            return f"{one if n == 1 else f'{n} {many}'} ago"
    return "just now"
