"""Asking the model what a chat would occupy of its context, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import msgspec

from engine import events
from engine.chat.answers import Answers, Model
from engine.chat.generation import prompt_messages, sent_messages
from engine.message import Overflow, PromptMessage, error_from
from engine.settings import Settings
from engine.store.chats import ChatStore
from engine.worker import protocol


class Ledgers:
    """`run` puts work on the engine thread."""

    def __init__(
        self,
        run: Callable[[Callable[[ChatStore], Any]], Future[Any]],
        model: Model,
        settings: Settings,
        answers: Answers,
        new_id: Callable[[], str],
    ) -> None:
        self._run, self._model, self._settings, self._answers, self._new_id = run, model, settings, answers, new_id

    def ask(self, chat_id: int | None, draft: str, overflow: Overflow | None) -> Future[events.ContextLedger]:
        """See `Conversations.ledger`."""
        result: Future[events.ContextLedger] = Future()

        def work(store: ChatStore) -> None:
            request, ids = self._request(store, chat_id, draft, overflow)
            self._model.submit(request, lambda event: _deliver(result, event, ids))

        def asked(future: Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                result.set_exception(error)

        self._run(work).add_done_callback(asked)
        return result

    def _request(
        self, store: ChatStore, chat_id: int | None, draft: str, overflow: Overflow | None
    ) -> tuple[protocol.Ledger, tuple[int, ...]]:
        system, sampling = self._settings.system_prompt, self._settings.sampling
        messages: tuple[PromptMessage, ...] = ()
        ids: tuple[int, ...] = ()
        if chat_id is not None:
            chat = store.chat(chat_id)
            branch = sent_messages(self._answers.known(store.branch(chat_id)))
            system, sampling = chat.settings.system_prompt or system, chat.settings.sampling or sampling
            messages, ids = prompt_messages(system, branch), tuple(m.id for m in branch)
        else:
            messages = prompt_messages(system, ())
        ids = (*[0] * (len(messages) - len(ids)), *ids)
        if draft.strip() or not any(ids):  # templates want a question
            messages, ids = (*messages, PromptMessage("user", draft)), (*ids, 0)
        request = protocol.Ledger(
            id=self._new_id(),
            messages=messages,
            overflow=overflow or cast(Overflow, self._settings.overflow),
            max_tokens=sampling.max_tokens,
            key=f"chat {chat_id or 'new'}",
        )
        return request, ids


def _deliver(result: Future[events.ContextLedger], event: events.Event, ids: tuple[int, ...]) -> None:
    """Runs on the worker client's reader thread, or on any thread for a request that never left."""
    if result.done():
        return
    if isinstance(event, events.ContextLedger):
        result.set_result(msgspec.structs.replace(event, message_ids=ids))
    elif isinstance(event, events.Error):
        result.set_exception(error_from(event.error))
