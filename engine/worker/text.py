"""From token bytes to text that may be shown: exact UTF-8, and stop texts held back and cut off.

Both classes give the same result however the input is split: fed piece by piece or at once.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


def to_utf8(text: str) -> bytes:
    """The bytes of a text. Lone surrogates, which are no text, become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


class Utf8Stream:
    """Incremental UTF-8 decoder. A character comes out when its last byte is in; invalid bytes and a tail that is cut
    off become U+FFFD, exactly as `bytes.decode("utf-8", "replace")` would do for the whole."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is left at the end: "" or one U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", True)


class StopMatcher:
    """Finds the earliest stop text in a stream and keeps everything that might belong to one from being shown.

    Earliest means: the match that begins first in the text. A stop that is complete therefore still waits while a
    longer one that began before it is possible. Of stops that begin at the same place the shortest is reported.

    Attributes:
        matched: the stop text that was found, or "".
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(sorted({s for s in stops if s}, key=len))
        self._held = ""
        self.matched = ""

    def feed(self, text: str) -> str:
        """The part of the text so far that can be shown now. After a match nothing more comes out."""
        if self.matched:
            return ""
        if not self._stops:
            return text
        if not text:
            return ""
        self._held += text
        start, stop = self._first_match()
        keep_from = self._possible_start(start if stop else len(self._held))
        if stop and keep_from >= start:
            return self._cut(start, stop)
        shown, self._held = self._held[:keep_from], self._held[keep_from:]
        return shown

    def flush(self) -> str:
        """The end of the text: what was held back, cut before a stop that was complete but waiting."""
        if self.matched:
            return ""
        start, stop = self._first_match()
        if stop:
            return self._cut(start, stop)
        shown, self._held = self._held, ""
        return shown

    def _cut(self, start: int, stop: str) -> str:
        shown, self._held, self.matched = self._held[:start], "", stop
        return shown

    def _first_match(self) -> tuple[int, str]:
        best, found = len(self._held), ""
        for stop in self._stops:  # shortest first, so that it wins at the same place
            at = self._held.find(stop, 0, best + len(stop) - 1) if found else self._held.find(stop)
            if at >= 0 and (not found or at < best):
                best, found = at, stop
        return best, found

    def _possible_start(self, limit: int) -> int:
        """First place before `limit` from where the text so far is the beginning of a stop text; else `limit`."""
        held, end = self._held, len(self._held)
        for stop in self._stops:
            at = held.find(stop[0], max(0, end - len(stop) + 1), limit)
            while at >= 0:
                if stop.startswith(held[at:]):
                    limit = at
                    break
                at = held.find(stop[0], at + 1, limit)
        return limit
