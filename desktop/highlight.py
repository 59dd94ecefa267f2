"""Syntax colours: Pygments finds the parts of a code, the theme says their colours.

Importing a lexer can take tens of milliseconds, so it happens on a thread; lexing runs on the GUI thread in slices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from pygments.token import Comment, Error, Generic, Keyword, Name, Number, Operator, Punctuation, String, Token
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QColor, QTextCharFormat

from desktop.theme import Theme

#: Characters; longer code is shown without colours.
MAX_HIGHLIGHT = 60_000

_COLOURS: tuple[tuple[Any, str], ...] = (
    (Comment, "syn_comment"),
    (Keyword.Type, "syn_type"),
    (Keyword, "syn_keyword"),
    (String, "syn_string"),
    (Number, "syn_number"),
    (Name.Function, "syn_name"),
    (Name.Class, "syn_type"),
    (Name.Decorator, "syn_variable"),
    (Name.Builtin, "syn_name"),
    (Name.Tag, "syn_keyword"),
    (Name.Attribute, "syn_name"),
    (Name.Variable, "syn_variable"),
    (Name.Constant, "syn_number"),
    (Name.Exception, "syn_type"),
    (Operator, "syn_operator"),
    (Punctuation, "syn_operator"),
    (Generic.Deleted, "bad"),
    (Generic.Inserted, "good"),
    (Generic.Heading, "syn_keyword"),
    (Generic.Subheading, "syn_keyword"),
    (Error, ""),
)


class SyntaxColours:
    """Text formats for Pygments' token types in one theme."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._formats: dict[Any, QTextCharFormat | None] = {}

    def format(self, token_type: Any) -> QTextCharFormat | None:
        """The format of a token type; None where the text keeps the colour of text."""
        try:
            return self._formats[token_type]
        except KeyError:
            pass
        made: QTextCharFormat | None = None
        for parent, name in _COLOURS:
            if token_type in parent:
                if name:
                    made = QTextCharFormat()
                    made.setForeground(QColor(getattr(self._theme, name)))
                break
        self._formats[token_type] = made
        return made


def lex(lexer: Any, text: str) -> Iterator[tuple[int, Any, str]]:
    """(position, token type, text) of a code, lazily; a lexer that fails gives the rest as plain text."""
    position = 0
    try:
        for start, token_type, value in lexer.get_tokens_unprocessed(text):
            position = start + len(value)
            yield start, token_type, value
    except Exception:  # a bug of one of several hundred lexers must not take the window down
        yield position, Token.Text, text[position:]


def is_open_ended(token_type: Any) -> bool:
    """Whether a line that starts with such a token may be the inside of something longer."""
    return token_type in String or token_type in Comment or token_type in Error


class Lexers(QObject):
    """Lexers by the name behind a fence, imported on a thread.

    Signals:
        loaded(str): the lexer of that name can be had now.
    """

    loaded = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lexers: dict[str, Any] = {}
        self._wanted: set[str] = set()

    def get(self, language: str) -> Any | None:
        """The lexer, or None if there is none or it is not there yet (`loaded` comes then)."""
        name = language.lower().strip("{}.")
        if not name or len(name) > 40:
            return None
        if name in self._lexers:
            return self._lexers[name]
        if name not in self._wanted and len(self._wanted) < 200:
            self._wanted.add(name)
            threading.Thread(target=_load, args=(name, self._found), name="lexer", daemon=True).start()
        return None

    def _found(self, name: str, lexer: Any | None) -> None:
        self._lexers[name] = lexer
        try:
            self.loaded.emit(name)
        except RuntimeError:  # the program is closing and the object is gone
            pass


def _load(name: str, done: Callable[[str, Any | None], None]) -> None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except (ClassNotFound, ImportError):
        lexer = None
    done(name, lexer)


_shared: Lexers | None = None


def lexers() -> Lexers:
    """The lexers of this program."""
    global _shared
    if _shared is None:
        _shared = Lexers()
    return _shared
