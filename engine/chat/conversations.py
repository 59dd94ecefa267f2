"""Chats from the user's words to the stored answer.

All work on the database runs on one engine thread, in order; every public method returns a future at once. The
user's message is on disk before the request goes to the model, and a running answer is at most about a second behind.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

from engine import events
from engine.chat.chats import Branch, Chats
from engine.errors import DiskFull, InvalidRequest, StorageFailed
from engine.message import (
    Chat,
    GenerationRecord,
    Message,
    Overflow,
    Part,
    ReasoningPart,
    TextPart,
)
from engine.store.chats import ChatStore, title_from


class Conversations(Chats):
    """The chats of one profile, with their messages and answers."""

    # -------------------------------------------------------------- messages

    def send(self, chat_id: int | None, text: str) -> Future[Message]:
        """Add the user's message and start the answer. Without a chat a new one is made.

        The future gives the user's message, which is on disk by then. It raises `InvalidRequest` for an empty text
        and `Busy` while an answer of this chat is being written.
        """

        def work(store: ChatStore) -> Message:
            if not text.strip():
                raise InvalidRequest("The message is empty", details={"field": "text"})
            if chat_id is not None:
                self._answers.refuse_if_running(chat_id)
            chat = store.create_chat(title_from(text)) if chat_id is None else store.chat(chat_id)
            if not chat.title and not chat.n_messages:
                store.rename_chat(chat.id, title_from(text))
            message = store.add_message(chat.id, chat.active_leaf_id, "user", (TextPart(text),))
            self._emit(events.MessageAdded(message=message))
            self._try_answer(store, message)
            self._emit(events.ChatListChanged())
            return message

        return self._run(work)

    def regenerate(self, message_id: int) -> Future[Message]:
        """A new answer beside the given one, or under the given user message. Gives the new message."""

        def work(store: ChatStore) -> Message:
            message = store.message(message_id)
            self._answers.refuse_if_running(message.chat_id)
            if message.role == "user":
                return self._answer(store, message)
            if message.parent_id is None:
                raise InvalidRequest("This message answers nothing", details={"field": "message_id"})
            return self._answer(store, store.message(message.parent_id))

        return self._run(work)

    def edit(self, message_id: int, text: str) -> Future[Message]:
        """Another version of a message, beside it. A user's message is answered anew, an answer is only kept."""

        def work(store: ChatStore) -> Message:
            old = store.message(message_id)
            self._answers.refuse_if_running(old.chat_id)
            parts: tuple[Part, ...] = (TextPart(text),)
            if old.role == "assistant":
                parts = (*(p for p in old.parts if isinstance(p, ReasoningPart)), *parts)
            message = store.add_message(old.chat_id, old.parent_id, old.role, parts, pinned=old.pinned)
            self._emit(events.MessageAdded(message=message))
            if old.role == "user":
                self._try_answer(store, message)
            self._emit(events.ChatListChanged())
            return message

        return self._run(work)

    def continue_message(self, message_id: int) -> Future[Message]:
        """Let the model write on at the end of an answer."""

        def work(store: ChatStore) -> Message:
            message = store.message(message_id)
            self._answers.refuse_if_running(message.chat_id)
            if message.role != "assistant":
                raise InvalidRequest("Only an answer can be continued", details={"field": "message_id"})
            self._answers.start(store, message, continued=True)
            return message

        return self._run(work)

    def pin(self, message_id: int, on: bool) -> Future[Message]:
        """Keep a message, with its whole turn, in the context when older turns are left out; or no longer."""

        def work(store: ChatStore) -> Message:
            message = self._answers.known([store.pin_message(message_id, on)])[0]
            self._emit(events.MessageChanged(message=message))
            return message

        return self._run(work)

    def delete_message(self, message_id: int) -> Future[Chat]:
        """Put a message and all that follows it away; `restore_message` brings it back."""

        def work(store: ChatStore) -> Chat:
            message = store.message(message_id)
            self._answers.abandon(store, message.chat_id)
            chat = store.delete_message(message_id)
            self._emit(events.ChatChanged(chat=chat))
            return chat

        return self._run(work)

    def restore_message(self, message_id: int) -> Future[Chat]:
        def work(store: ChatStore) -> Chat:
            store.restore_message(message_id)
            chat = store.set_active(store.message(message_id).chat_id, message_id)
            self._emit(events.ChatChanged(chat=chat))
            return chat

        return self._run(work)

    def switch_version(self, message_id: int, step: int) -> Future[tuple[Chat, Branch]]:
        """Show the version `step` places after (or before) the given one, with what followed it last."""

        def work(store: ChatStore) -> tuple[Chat, Branch]:
            message = store.message(message_id)
            self._answers.refuse_if_running(message.chat_id)
            versions = store.siblings(message_id)
            if message_id not in versions:
                raise InvalidRequest("This message was deleted", details={"field": "message_id"})
            place = versions.index(message_id) + step
            if not 0 <= place < len(versions):
                raise InvalidRequest("There is no such version", details={"field": "step"})
            chat = store.set_active(message.chat_id, versions[place])
            self._emit(events.ChatChanged(chat=chat))
            return chat, self._answers.known(store.branch(chat.id))

        return self._run(work)

    def show(self, message_id: int) -> Future[tuple[Chat, Branch]]:
        """Show the branch that a message stands on, if another one is shown; gives the chat and its branch."""

        def work(store: ChatStore) -> tuple[Chat, Branch]:
            message = store.message(message_id)
            branch = store.branch(message.chat_id)
            if all(shown.id != message_id for shown in branch):
                self._answers.refuse_if_running(message.chat_id)
                self._emit(events.ChatChanged(chat=store.set_active(message.chat_id, message_id)))
                branch = store.branch(message.chat_id)
            return store.chat(message.chat_id), self._answers.known(branch)

        return self._run(work)

    # -------------------------------------------------------------- answers

    def ledger(
        self, chat_id: int | None, draft: str = "", overflow: Overflow | None = None
    ) -> Future[events.ContextLedger]:
        """What would occupy which tokens of the context if `draft` were sent now. Without a chat: of a new one.

        Cheap enough to be asked for while the draft is typed: the model's process remembers the tokens of each
        message. The future raises `Cancelled` when it was asked for again before it was done.

        Arguments:
            overflow: what if it no longer fits; None: as the settings say.
        """
        return self._ledgers.ask(chat_id, draft, overflow)

    def _answer(self, store: ChatStore, parent: Message) -> Message:
        message = store.add_message(
            parent.chat_id, parent.id, "assistant", (), status="streaming", generation=GenerationRecord()
        )
        self._emit(events.MessageAdded(message=message))
        self._answers.start(store, message, continued=False)
        return message

    def _try_answer(self, store: ChatStore, message: Message) -> None:
        """Answer a message that is stored already: it counts as sent, also where its answer finds no room."""
        try:
            self._answer(store, message)
        except (DiskFull, StorageFailed) as error:
            self._emit(events.Notice(level="error", text=error.message, hint=error.hint))

    def look_at(self, chat_id: int | None) -> None:
        """This chat is on screen now: its answers come before those of the others. None: no chat does."""
        self._answers.look_at(chat_id)

    def generating(self) -> dict[int, int]:
        """chat id -> id of the message that is being written."""
        return self._answers.running()

    def stop(self, chat_id: int | None = None) -> None:
        """Stop writing in one chat, or in all, also an answer that was asked for but has not begun. What was written
        stays."""
        self._answers.stop(chat_id)
        with suppress(RuntimeError):  # the engine has ended
            self._run(lambda store: self._answers.stop(chat_id))

    def close(self) -> None:
        """Keep what the running answers have so far and stop them. Runs on the engine thread."""
        self._answers.close(self._open_store())
