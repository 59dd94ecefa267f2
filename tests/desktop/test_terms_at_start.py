"""What a newcomer meets first leads to the glossary: first start, downloads, list of chats. F1 works there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models_help import LAPTOP, use_machine
from PySide6.QtWidgets import QLabel, QMenu, QProgressBar, QPushButton
from pytestqt.qtbot import QtBot

from desktop.views.library.downloads_page import DownloadStrip
from desktop.widgets.term import WHAT_IS_THIS, term_of
from engine import glossary
from engine.events import DownloadInfo


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    use_machine(monkeypatch, LAPTOP)
    monkeypatch.setenv("HOME", str(home))


def test_the_first_start_is_explained(shell: Any) -> None:
    one = shell(load_model=True)
    one.wait(lambda: one.window.models.first_run is not None)
    page = one.window.models.first_run
    one.wait(lambda: page.verdict.text() != "")
    parts = [page.machine, page.verdict, page.chat, page.chat_words, page.more]
    for card in page.cards.values():
        parts += [card.button, *(label for label in card.findChildren(QLabel) if label.objectName() != "")]
        parts += [card.name, card.words, card.bar]
    headings = [label for label in page.findChildren(QLabel) if label.property("role") == "section"]
    assert len(headings) == 3
    for part in [*parts, *headings]:
        assert glossary.term(term_of(part)) is not None, (part.objectName(), part)
    for label in (page.machine, page.verdict, *headings):
        assert "F1 tells more" in label.toolTip()
    page.chat.setFocus()
    one.window.inside.help.open(term_of(page.chat))
    one.wait(lambda: one.window.inside.view is not None and one.window.inside.view.isVisible())


@pytest.mark.parametrize("status", ["queued", "running", "paused", "failed", "done"])
def test_a_download_is_explained(qtbot: QtBot, status: str) -> None:
    info = DownloadInfo(id="1", repo="maker/Model-GGUF", label="Q4_K_M", status=status)
    strip = DownloadStrip(info)
    qtbot.addWidget(strip)
    for kind in (QLabel, QProgressBar, QPushButton):
        for part in strip.findChildren(kind):
            assert glossary.term(term_of(part)) is not None, part.objectName()
    assert term_of(strip.repo) == "repository" and term_of(strip.words) == "checksum"


def test_the_list_of_chats_is_explained(shell: Any, model_file: Path) -> None:
    one = shell({})
    chats = one.window.chat_list
    assert {term_of(part) for part in (chats.view, chats.view.viewport(), chats.new_chat, chats.empty)} == {
        "context_window"
    }
    assert "F1" in chats.view.toolTip() and "F1 tells more" in chats.new_chat.toolTip()
    one.load(model_file)
    one.answer("Hi")
    one.wait(lambda: chats.model.rowCount() > 1)
    chats._context_menu(chats.view.visualRect(chats.model.index_of(one.presenter.chat_id)).center())
    menu = next(menu for menu in chats.findChildren(QMenu) if menu.isVisible())
    assert [action.text() for action in menu.actions() if action.text()] == ["Rename", "Delete", WHAT_IS_THIS]
    next(action for action in menu.actions() if action.text() == WHAT_IS_THIS).trigger()
    one.wait(lambda: one.window.inside.view is not None and one.window.inside.view.isVisible())
    menu.close()
