"""What `--self-test-window` does with the window: every page is shown once, so that all that is loaded late is loaded.

A package may lack a part that no start needs; this finds it. A page that fails ends the test with its traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from desktop import plots

if TYPE_CHECKING:
    from desktop.main_window import MainWindow
    from desktop.tasks import Tasks

#: what the program imports when it is needed, and no page does
_LATE = ("keyring.backends", "send2trash", "huggingface_hub.hf_api", "pygments.lexers.python", "linkify_it", "jinja2")
_BETWEEN_MS = 20


class PageWalk(QObject):
    """Goes through the pages of a window and calls `done` at the end."""

    def __init__(self, window: MainWindow, tasks: Tasks, done: Callable[[], None]) -> None:
        super().__init__(window)
        self._window, self._tasks, self._done = window, tasks, done
        from desktop.views.inside.inside_view import PAGES

        inside = [lambda page=page.id: window.inside.show(page) for page in PAGES]
        self._steps: list[Callable[[], object]] = [
            window.show_models, *inside, window.bench.show, window.show_settings, self._engine_settings, self._licences,
            window.show_chat,
        ]  # fmt: skip

    def start(self) -> None:
        """Begin; the window goes on meanwhile."""
        QTimer.singleShot(_BETWEEN_MS, self, self._step)

    def _step(self) -> None:
        if self._steps:
            self._steps.pop(0)()
            QTimer.singleShot(_BETWEEN_MS, self, self._step)
        else:
            plots.load(self._tasks, lambda _: self._import_late(), self)

    def _engine_settings(self) -> None:
        assert self._window.settings_view is not None
        self._window.settings_view.show_tab(1)

    def _licences(self) -> None:
        from engine import licences

        self._tasks.run(lambda: [licences.text(part) for part in licences.parts()], None, _fail, owner=self)

    def _import_late(self) -> None:
        self._tasks.run(lambda: [import_module(name) for name in _LATE], lambda _: self._done(), _fail, owner=self)


def _fail(error: BaseException) -> None:
    raise error
