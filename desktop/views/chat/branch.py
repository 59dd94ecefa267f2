"""The messages on screen: one branch of a chat's tree, as events change it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.message import Message


class Branch:
    """A list of messages, root first, that knows what an arriving message replaces."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = list(messages)

    def last(self, role: str) -> Message | None:
        """The last message of a role."""
        return next((m for m in reversed(self.messages) if m.role == role), None)

    def find(self, message_id: int) -> Message | None:
        return next((m for m in reversed(self.messages) if m.id == message_id), None)

    def place_of(self, message: Message) -> int | None:
        """Where a new message belongs: after its parent; None if the parent is not on this branch."""
        if message.parent_id is None:
            return 0
        return next((i + 1 for i, m in enumerate(self.messages) if m.id == message.parent_id), None)

    def put(self, place: int, message: Message) -> Message:
        """Put a new message at its place, in place of what stood there and after it; gives it with its version.

        The record of a message that was just made does not say which version it is; what it replaces does.
        """
        if place < len(self.messages):
            old = self.messages[place]
            if message.n_versions == 1 and old.role == message.role:
                n_versions = old.n_versions + 1
                message = msgspec.structs.replace(message, version=n_versions, n_versions=n_versions)
        self.messages[place:] = [message]
        return message

    def replace(self, message: Message) -> Message | None:
        """Take a message's new content; None if it is not on this branch. A version once known is kept."""
        for place in range(len(self.messages) - 1, -1, -1):
            old = self.messages[place]
            if old.id == message.id:
                if message.n_versions < old.n_versions:
                    message = msgspec.structs.replace(message, version=old.version, n_versions=old.n_versions)
                self.messages[place] = message
                return message
        return None
