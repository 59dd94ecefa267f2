"""The chats of a profile without their messages: their list, search, names, settings; put away and brought back.

All work on the database runs on one engine thread, in order; every public method returns a future at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from engine import events
from engine.chat.answers import Answers, Model
from engine.chat.ledgers import Ledgers
from engine.chat.traces import Traces
from engine.errors import DatabaseDamaged
from engine.message import Chat, ChatSettings, Message
from engine.settings import Settings
from engine.store.chats import ChatStore, SearchHit

T = TypeVar("T")
#: `Chats.list` hides the built-in name inside the class
ChatList = list[Chat]
Branch = list[Message]
Hits = list[SearchHit]


class Chats:
    """Base of `Conversations`. `emit` is called from engine threads.

    Attributes:
        traces: how answers came about.
    """

    def __init__(
        self,
        store: Callable[[], ChatStore],
        on_damaged: Callable[[DatabaseDamaged], None],
        model: Model,
        settings: Settings,
        emit: Callable[[events.Event], None],
        thread: ThreadPoolExecutor,
        new_id: Callable[[], str],
    ) -> None:
        self._open_store = store
        self._on_damaged = on_damaged
        self._emit = emit
        self._thread = thread
        self._answers = Answers(self._run, model, settings, emit, new_id)
        self._ledgers = Ledgers(self._run, model, settings, self._answers, new_id)
        self.traces = Traces(self._run, model, self._answers, emit, new_id)

    def _run(self, work: Callable[[ChatStore], T]) -> Future[T]:
        return self._thread.submit(self._with_store, work)

    def _with_store(self, work: Callable[[ChatStore], T]) -> T:
        try:
            return work(self._open_store())
        except DatabaseDamaged as error:
            # a deep page can turn out bad at any time; what is readable goes on in a new file
            self._on_damaged(error)
            raise

    def list(self) -> Future[ChatList]:
        """All chats that are not deleted, newest first."""
        return self._run(lambda store: store.chats())

    def search(self, query: str) -> Future[Hits]:
        return self._run(lambda store: store.search(query))

    def create(self) -> Future[Chat]:
        def work(store: ChatStore) -> Chat:
            chat = store.create_chat()
            self._emit(events.ChatListChanged())
            return chat

        return self._run(work)

    def open(self, chat_id: int) -> Future[tuple[Chat, Branch]]:
        """The chat and its branch on screen, root first."""
        return self._run(lambda store: (store.chat(chat_id), self._answers.known(store.branch(chat_id))))

    def rename(self, chat_id: int, title: str) -> Future[Chat]:
        return self._change_chat(lambda store: store.rename_chat(chat_id, title), chat_id)

    def set_settings(self, chat_id: int, settings: ChatSettings) -> Future[Chat]:
        return self._change_chat(lambda store: store.set_chat_settings(chat_id, settings), chat_id)

    def delete(self, chat_id: int) -> Future[None]:
        """Put a chat away; `restore` brings it back. An answer being written is kept as far as it came."""

        def work(store: ChatStore) -> None:
            self._answers.abandon(store, chat_id)
            store.delete_chat(chat_id)
            self._answers.forget(chat_id)
            self._emit(events.ChatListChanged())

        return self._run(work)

    def restore(self, chat_id: int) -> Future[Chat]:
        return self._change_chat(lambda store: store.restore_chat(chat_id), chat_id)

    def _change_chat(self, change: Callable[[ChatStore], object], chat_id: int) -> Future[Chat]:
        def work(store: ChatStore) -> Chat:
            change(store)
            chat = store.chat(chat_id)
            self._emit(events.ChatChanged(chat=chat))
            self._emit(events.ChatListChanged())
            return chat

        return self._run(work)
