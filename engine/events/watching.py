"""What the KV cache holds, for those who watch it."""

from __future__ import annotations

import msgspec

from engine.events.base import Event


class KvSequence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sequence of the context: what is kept of one chat.

    Its cells, by position: first those that it shares with other sequences, then its own; `n_moved` of these, from
    `moved_from` on, were moved there after turns before them had been left out.

    Attributes:
        slot: its number. key: `Generate.cache_key` of its chat, "" where it has none.
        n_cells: all of its cells.
        n_shared: how many of the first ones other sequences hold, too; n_listed: how many of these a sequence earlier
            in `KvMap.sequences` has named already, so that they are not counted twice.
        n_saved: how many tokens are on disk.
        active: an answer is being computed in it.
    """

    slot: int
    key: str = ""
    n_cells: int = 0
    n_shared: int = 0
    n_listed: int = 0
    moved_from: int = 0
    n_moved: int = 0
    n_saved: int = 0
    active: bool = False

    @property
    def chat_id(self) -> int | None:
        """The chat it belongs to, None where that is not known."""
        kind, _, number = self.key.partition("-")
        return int(number) if kind == "chat" and number.isdigit() else None

    @property
    def n_shared_new(self) -> int:
        """Shared cells that no sequence before it has named."""
        return max(0, self.n_shared - self.n_listed)

    @property
    def n_own(self) -> int:
        """Cells that no other sequence holds, moved ones included."""
        return self.n_cells - self.n_shared

    @property
    def n_own_moved(self) -> int:
        """Of its own cells, those that were moved."""
        return max(0, self.moved_from + self.n_moved - max(self.moved_from, self.n_shared)) if self.n_moved else 0


class KvMap(Event, frozen=True):
    """Who holds which part of the KV cache. Sent while somebody watches (`protocol.Watch`), when it has changed.

    Attributes:
        n_ctx: cells there are. n_used: cells that hold something, shared ones counted once.
        sequences: only those that hold something.
    """

    n_ctx: int
    n_used: int
    sequences: tuple[KvSequence, ...] = ()
