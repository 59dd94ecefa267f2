"""What a start was asked to open: GGUF files, as dropped on the window, and links that name a model of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from engine.errors import InvalidRequest
from engine.models.links import MAX_LENGTH, is_link, parse

if TYPE_CHECKING:
    from desktop.main_window import MainWindow

_LOCAL_HOSTS = ("", "localhost")


def argument(text: str) -> str:
    """An argument of a start as everything after it takes it: a link, no longer than can be right, or a path.

    File managers give files as `file:` addresses to programs that take links too.
    """
    if is_link(text):
        return text[: MAX_LENGTH + 1]
    if text[:5].casefold() != "file:":
        return text
    parts = urlsplit(text)
    if parts.netloc.casefold() not in _LOCAL_HOSTS:
        return text
    path = unquote(parts.path, errors="surrogateescape")
    return path.lstrip("/") if path[2:3] == ":" else path  # file:///C:/…


def absolute(text: str) -> str:
    """The same argument for another process, whose folder may be another one."""
    return text if is_link(text) else str(Path(text).absolute())


def file_of(arguments: Sequence[str]) -> str:
    """The file that is meant to be loaded: the first that is called a GGUF model, else the first; empty: none."""
    files = [text for text in arguments if not is_link(text)]
    return next((file for file in files if file.lower().endswith(".gguf")), next(iter(files), ""))


def show_link(window: MainWindow, arguments: Sequence[str]) -> bool:
    """Show the page of the model that the first link names, or why it is not shown; False if there is no link.

    Nothing is asked of the network: that takes a click on the page.
    """
    text = next((text for text in arguments if is_link(text)), "")
    if not text:
        return False
    try:
        link = parse(text)
    except InvalidRequest as error:
        window.show_chat()
        window.chat_view.show_error(error)
        return True
    window.models.show_link(link)
    return True
