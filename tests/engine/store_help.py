"""Filling stores quickly: one wait for the disk instead of one per message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from engine.message import Role, TextPart
from engine.store.chats import ChatStore


@contextmanager
def one_transaction(store: ChatStore) -> Iterator[None]:
    """All calls in the block share one transaction."""
    db: Any = store._db
    with db.transaction():
        db.transaction = nullcontext
        try:
            yield
        finally:
            del db.transaction


def grow(store: ChatStore, chat_id: int, n: int, parent: int | None = None, body: str = "message") -> list[int]:
    """A line of n messages, user first; their ids. The texts are "BODY 0", "BODY 1" ..."""
    made = []
    for number in range(n):
        role: Role = "assistant" if number % 2 else "user"
        parent = store.add_message(chat_id, parent, role, (TextPart(f"{body} {number}"),)).id
        made.append(parent)
    return made
