"""Keeps the context meter and the list behind it true: asks the engine for a ledger when something has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge import EngineBridge
from desktop.views.chat.composer import Composer
from desktop.views.chat.context_popup import ContextPopup
from desktop.views.chat.presenter import ChatPresenter
from desktop.views.chat.status_strip import StatusStrip
from engine.errors import Cancelled
from engine.events import ContextLedger, ModelState

if TYPE_CHECKING:
    from engine.service import Engine

#: after the last key, and after anything else
_TYPING_MS = 300
_SOON_MS = 50
#: settings that change what is sent
_SETTINGS = ("overflow", "system_prompt", "sampling")


class ContextDesk(QObject):
    """Signals:
    failed(object): a setting could not be saved. message_chosen(int): the user wants to see this message.
    """

    failed = Signal(object)
    message_chosen = Signal(int)

    def __init__(
        self,
        engine: Engine,
        bridge: EngineBridge,
        presenter: ChatPresenter,
        composer: Composer,
        strip: StatusStrip,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine, self._bridge = engine, bridge
        self._presenter, self._composer, self._strip = presenter, composer, strip
        self.popup = ContextPopup(strip)
        self.ledger: ContextLedger | None = None
        self._draft = ""  # what the ledger was made with
        self._number = 0
        self._ready = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._ask)
        composer.changed.connect(lambda: self._soon(_TYPING_MS))
        presenter.chat_switched.connect(lambda _: self._forget())
        presenter.opened.connect(lambda _: self._soon())
        presenter.updated.connect(lambda _: self._soon())
        presenter.generating_changed.connect(lambda _: self._soon())
        bridge.chat_changed.connect(lambda event: self._on_chat(event.chat.id))
        strip.pressed.connect(self.open)
        self.popup.policy_chosen.connect(self._set_policy)
        self.popup.message_chosen.connect(self.message_chosen)

    # ---- asking

    def on_model_state(self, state: ModelState) -> None:
        """Another model counts otherwise; without one there is nothing to count."""
        ready = state.status == "ready"
        if ready != self._ready or not ready:
            self._ready = ready
            self._forget()

    def on_setting_changed(self, name: str) -> None:
        if name in _SETTINGS:
            self._soon()

    def _on_chat(self, chat_id: int) -> None:
        if chat_id == self._presenter.chat_id:
            self._soon()

    def _forget(self) -> None:
        self.ledger = None
        self._number += 1  # what is on its way is about something else
        self._strip.set_ledger(None)
        self._soon()

    def _soon(self, after_ms: int = _SOON_MS) -> None:
        if self._ready:
            self._timer.start(after_ms)

    def _ask(self) -> None:
        """While an answer is written its own figures count; it is asked again at its end."""
        if not self._ready or self._presenter.generating:
            return
        self._number += 1
        number, draft = self._number, self._composer.text()

        def show(ledger: ContextLedger) -> None:
            if number == self._number and not self._presenter.generating:
                self.ledger, self._draft = ledger, draft
                self._strip.set_ledger(ledger, has_draft=bool(draft.strip()))
                self._refill()

        def failed(error: BaseException) -> None:
            if number == self._number and not isinstance(error, Cancelled):
                self.ledger = None
                self._strip.set_ledger(None)
                self._refill(str(error))

        future = self._engine.chats.ledger(self._presenter.chat_id, draft)
        self._bridge.run(future, show, failed, owner=self)

    def stop(self) -> None:
        """Ask the engine for nothing any more."""
        self._ready = False
        self._number += 1
        self._timer.stop()
        self.popup.hide()

    # ---- the list

    def open(self) -> None:
        """Show the list over the meter."""
        self._fill()
        self.popup.open_above(self._strip.meter)

    def _refill(self, why: str = "") -> None:
        if self.popup.isVisible():
            self._fill(why)

    def _fill(self, why: str = "") -> None:
        self.popup.set_policy(self._engine.settings.overflow)
        if self.ledger is None:
            nothing = "It is being counted." if self._ready else "No model is loaded, so nothing can be counted."
            self.popup.show_nothing(why or nothing)
            return
        texts = {message.id: message.text for message in self._presenter.messages}
        self.popup.show_ledger(self.ledger, texts, self._draft)

    def _set_policy(self, policy: str) -> None:
        self._bridge.run(self._engine.change_settings(overflow=policy), None, self.failed.emit, owner=self)
        self._soon(0)
