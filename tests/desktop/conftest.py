"""The real window over the real engine; only the model process is the scripted one, where a test asks for it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop import app, icons
from desktop.main_window import MainWindow
from engine.paths import resolve


class Shell:
    """A running application and a few words for what tests do with it."""

    def __init__(self, application: app.Application, qtbot: QtBot) -> None:
        self.app = application
        self.qtbot = qtbot

    @property
    def window(self) -> MainWindow:
        return self.app.window

    @property
    def view(self) -> Any:
        return self.app.window.chat_view

    @property
    def presenter(self) -> Any:
        return self.app.window.chat_view.presenter

    def wait(self, condition: Callable[[], bool], timeout_s: float = 30) -> None:
        self.qtbot.waitUntil(condition, timeout=round(timeout_s * 1000))

    def load(self, path: Path) -> None:
        self.window.control.load(path)
        self.wait(lambda: self.window.control.state.status == "ready")

    def send(self, text: str) -> None:
        self.view.composer.edit.setPlainText(text)
        self.view.composer.submit()

    def at_rest(self, n_messages: int) -> bool:
        """Whether the last of so many messages is an answer that is over.

        `not generating` alone is also true for the moment between a question and the answer under it.
        """
        messages = self.presenter.messages
        return len(messages) >= n_messages and messages[-1].role == "assistant" and not self.presenter.generating

    def answer(self, text: str) -> Any:
        """Send and wait for the end of the answer."""
        before = len(self.presenter.messages)
        self.send(text)
        self.wait(lambda: self.at_rest(before + 2), 60)
        return self.presenter.messages[-1]

    def result(self, future: Any) -> Any:
        self.wait(future.done)
        return future.result()

    def close(self) -> None:
        self.app.close()
        end = time.monotonic() + 10
        while not (self.app.ended and not self.app._poll.isActive()) and time.monotonic() < end:
            QApplication.processEvents()
            time.sleep(0.005)
        assert self.app.ended
        self.app.window.deleteLater()
        QApplication.processEvents()


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A file that the scripted worker pretends to load."""
    path = tmp_path / "Tiny Model.Q4_K_M.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def shell(
    qapp: QApplication, qtbot: QtBot, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Shell]]:
    """Makes running windows: `shell(script)`. They are closed at the end as a user would close them."""
    qapp.setStyle("Fusion")
    monkeypatch.setattr("engine.models.starter.find", lambda models=None: None)
    made: list[Shell] = []

    def make(
        script: dict[str, Any] | None = None,
        *,
        theme: str = "light",
        start: bool = True,
        load_model: bool = False,
        real: bool = False,
    ) -> Shell:
        command = [sys.executable, "-m", "engine.worker.fake", "--script", json.dumps(script or {})]
        options = app.Options(theme=theme, load_model=load_model)
        paths = resolve(home).ensure()
        application = app.Application(qapp, paths, options, worker_command=None if real else command)
        one = Shell(application, qtbot)
        made.append(one)
        if start:
            application.start()
            qtbot.waitUntil(lambda: not icons._waiting and application.window._painted, timeout=10_000)
        return one

    yield make
    for one in made:
        if not one.app.ended:
            one.close()
