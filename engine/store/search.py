"""Full-text search over messages and chat titles.

The words go through SQLite's FTS5 (unicode61: any case); accents are taken off before. Scripts written without spaces
(Chinese, Japanese, Thai ...) would be one long word there, so `index_form` puts every character of them on its own, in
the index as in the query: a search for any run of them is then a phrase. What the user types is never FTS syntax.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence

import msgspec

from engine.errors import DatabaseDamaged
from engine.store.database import Database
from engine.store.records import clean_text, load_parts, visible_text

MAX_QUERY_CHARS = 1000
MAX_WORDS = 32
#: newest matching messages that are looked at; a common word in a large database matches nearly all
MAX_MATCHES = 2000
SNIPPET_CHARS = 120
_ACCENTS = re.compile("[\u0300-\u036f]")
# Thai to Myanmar, Khmer, Hangul, kana, bopomofo, Han with extensions and compatibility forms. Never change the ranges
# without a migration that rebuilds the index: taking a text out of it needs the same form as putting it in.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3040-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)


class SearchHit(msgspec.Struct, frozen=True):
    """A chat that matches.

    Attributes:
        message_id: the newest matching message; None if only the title matches.
        snippet: one line of that message around the first match; the title if only that matches.
        n_matches: matching messages of the chat, counted among the newest `MAX_MATCHES` of all chats.
        marks: where matches stand in the snippet, as (start, end) in characters.
    """

    chat_id: int
    chat_title: str
    message_id: int | None
    snippet: str
    n_matches: int = 1
    marks: tuple[tuple[int, int], ...] = ()


def index_form(text: str) -> str:
    """The text as it goes into the index, and as a query goes to it."""
    return _UNSPACED.sub(r" \1 ", _without_accents(clean_text(text).replace("\0", " ")))


class SearchIndex:
    """Keeps the index beside the messages; each change belongs into the transaction that changes the message."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, message_id: int, text: str) -> None:
        """Call only for a message that is not in the index."""
        self._db.run("INSERT INTO message_index(rowid, text) VALUES (?, ?)", (message_id, index_form(text)))
        self._db.run("UPDATE messages SET indexed = 1 WHERE id = ?", (message_id,))

    def remove(self, message_id: int, text: str) -> None:
        """Call only for a message that is in the index, with the text that was added."""
        self._db.run(
            "INSERT INTO message_index(message_index, rowid, text) VALUES ('delete', ?, ?)",
            (message_id, index_form(text)),
        )
        self._db.run("UPDATE messages SET indexed = 0 WHERE id = ?", (message_id,))

    def rebuild(self) -> None:
        """Makes the index anew from the messages."""
        with self._db.transaction():
            self._db.run("INSERT INTO message_index(message_index) VALUES ('delete-all')")
            self._db.run("UPDATE messages SET indexed = 0")
            for message_id, parts in self._db.rows("SELECT id, parts FROM messages WHERE status != 'streaming'"):
                self.add(message_id, visible_text(load_parts(parts)))

    def search(self, query: str, limit: int) -> list[SearchHit]:
        """Chats with all words of the query in one message or in the title, most lately changed first.

        The last word may be unfinished. A query without letters or digits ("->", an emoji) is looked for as it stands.
        """
        words = clean_text(query[:MAX_QUERY_CHARS]).replace("\0", " ").split()[:MAX_WORDS]
        if not words or limit <= 0:
            return []
        found = self._messages(words)
        newest: dict[int, int] = {}
        counts: dict[int, int] = {}
        for message_id, chat_id in found:
            newest.setdefault(chat_id, message_id)
            counts[chat_id] = counts.get(chat_id, 0) + 1
        folded = [fold(word) for word in words]
        hits = []
        titles = "SELECT id, title FROM chats WHERE deleted_s IS NULL ORDER BY updated_s DESC, id DESC"
        for chat_id, title in self._db.rows(titles):
            if chat_id in newest:
                text = self._db.value("SELECT parts FROM messages WHERE id = ?", (newest[chat_id],))
                snippet, marks = make_snippet(visible_text(load_parts(text)), words)
                hits.append(SearchHit(chat_id, title, newest[chat_id], snippet, counts[chat_id], marks))
            elif all(word in fold(title) for word in folded):
                hits.append(SearchHit(chat_id, title, None, title, 0, find_marks(title, words)))
            if len(hits) == limit:
                break
        return hits

    def _messages(self, words: Sequence[str]) -> list[tuple[int, int]]:
        """(message, chat), newest first."""
        expression = match_expression(words)
        if not expression:
            # as it stands in the stored JSON
            needle = json.dumps(" ".join(words), ensure_ascii=False)[1:-1]
            condition, value = "instr(m.parts, ?) > 0", needle
            source = "messages AS m"
        else:
            condition, value = "message_index MATCH ?", expression
            source = "message_index JOIN messages AS m ON m.id = message_index.rowid"
        order = "message_index.rowid" if expression else "m.id"
        sql = (
            f"SELECT m.id, m.chat_id FROM {source} JOIN chats AS c ON c.id = m.chat_id"
            f" WHERE {condition} AND m.deleted_s IS NULL AND c.deleted_s IS NULL AND m.role != 'system'"
            f" ORDER BY {order} DESC LIMIT {MAX_MATCHES}"
        )
        try:
            return [(row[0], row[1]) for row in self._db.rows(sql, (value,))]
        except DatabaseDamaged:
            # the index can be made anew; if the messages are damaged, this raises again
            self.rebuild()
            return [(row[0], row[1]) for row in self._db.rows(sql, (value,))]


def match_expression(words: Sequence[str]) -> str:
    """The words as an FTS5 query in which nothing is syntax; empty if no word holds a letter or digit.

    Raises nothing: quotes are doubled, and inside quotes FTS5 knows no operators.
    """
    phrases = ['"' + index_form(w).replace('"', '""') + '"' for w in words if any(map(_is_token_char, w))]
    if not phrases:
        return ""
    if any(map(_is_token_char, words[-1][-1])):  # "C++" is finished, "contain" perhaps not
        phrases[-1] += "*"
    return " AND ".join(phrases)


def fold(text: str) -> str:
    """For comparing: no case, no accents."""
    return _without_accents(text).casefold()


def make_snippet(text: str, words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """One line of about `SNIPPET_CHARS` characters around the first match, and the matches in it."""
    first = min((m.start() for word in words if (m := _word_pattern(word).search(text))), default=-1)
    if first < 0:
        # only without diacritics: slower, so not in all of a very long text
        marks = find_marks(text[:20_000], words)
        first = marks[0][0] if marks else 0
    start = max(0, first - SNIPPET_CHARS // 3)
    end = min(len(text), start + SNIPPET_CHARS)
    if start > 0 and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    if end < len(text) and (space := text.rfind(" ", first + 1, end)) > start + SNIPPET_CHARS // 2:
        end = space
    line = " ".join(text[start:end].split())
    snippet = ("…" if start > 0 else "") + line + ("…" if end < len(text) else "")
    return snippet, find_marks(snippet, words)


def find_marks(text: str, words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """All matches of the words, as non-overlapping (start, end), in order. Compares as `fold` does."""
    folded, origin = [], []
    for position, char in enumerate(text):
        for piece in char.lower() if char.isascii() else fold(char):
            folded.append(piece)
            origin.append(position)
    whole = "".join(folded)
    taken: list[tuple[int, int]] = []
    for word in {fold(word) for word in words} - {""}:
        at = whole.find(word)
        while at >= 0:
            taken.append((origin[at], origin[at + len(word) - 1] + 1))
            at = whole.find(word, at + len(word))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(taken):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def _word_pattern(word: str) -> re.Pattern[str]:
    return re.compile(re.escape(word), re.IGNORECASE)


def _without_accents(text: str) -> str:
    # NFD and NFC never change for assigned characters, so the form is the same under every version of Unicode. Only the
    # general marks go: a kana's voicing or an Indic vowel sign makes another word.
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


def _is_token_char(char: str) -> bool:
    # what unicode61 keeps: letters, numbers, private use
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Co"
