"""The end of the settings: which version, whether there is a newer one, and where everything lies."""

from __future__ import annotations

import json
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

import engine
from desktop import update_desk
from desktop.views.settings.about_section import AboutSection, outside
from engine import updates
from engine.errors import UpdateCheckFailed
from engine.paths import resolve
from engine.settings import Settings
from engine.store.chats import ChatStore
from engine.store.migrations import SCHEMA

FEED = "https://example.org/latest.json"
NEWER = json.dumps({"version": "9999.1", "page": "https://example.org/9999.1", "released": "2026-12-01"}).encode()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that were asked; each answers with a newer version."""
    found: list[str] = []
    monkeypatch.setattr(updates, "built_in_feed", lambda: FEED)
    monkeypatch.setattr(updates, "_fetch", lambda feed: found.append(feed) or NEWER)
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: found.append(url.toString(QUrl.FullyEncoded)) or True)
    return found


def about(shell: Any) -> AboutSection:
    shell.window.show_settings()
    return shell.window.settings_view.about


def test_nothing_connects_unless_it_is_allowed(shell, qtbot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole run with the timer at full speed, and the settings open: no socket is connected, no name looked up."""
    tries: list[object] = []
    for owner, name in ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")):
        monkeypatch.setattr(owner, name, lambda *words, **more: tries.append(words))
    monkeypatch.setattr(updates, "built_in_feed", lambda: FEED)
    looks: list[object] = []
    real = updates.Updates.check_if_due

    def look(self: updates.Updates) -> object:
        future = real(self)
        looks.append(future)
        return future

    monkeypatch.setattr(updates.Updates, "check_if_due", look)
    monkeypatch.setattr(update_desk, "FIRST_LOOK_MS", 1)
    monkeypatch.setattr(update_desk, "LOOK_MS", 1)
    running = shell()
    section = about(running)
    qtbot.waitUntil(lambda: len(looks) > 20)
    assert not section.daily.isChecked()
    assert section.status.text() == "Nobody was asked for a new version yet."
    running.close()
    assert looks == [None] * len(looks)
    assert tries == []


def test_the_button_asks_and_the_page_opens_on_a_click(shell, qtbot, asked: list[str], opened: list[str]) -> None:
    running = shell()
    section = about(running)
    assert section.version.text() == f"Inglenook {engine.__version__}"
    assert section.open_page.isHidden()
    assert "example.org" in section.check.toolTip()
    section.check.click()
    qtbot.waitUntil(lambda: not section.open_page.isHidden())
    assert asked == [FEED]
    assert section.status.text() == "Inglenook 9999.1 of 2026-12-01 is out."
    assert opened == []  # telling is all it does by itself
    section.open_page.click()
    assert opened == ["https://example.org/9999.1"]
    assert running.window.toast.isHidden()


def test_a_failure_is_said_where_it_was_asked(shell, qtbot, asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(feed: str) -> bytes:
        raise UpdateCheckFailed("It is not known", hint="Try later.", details={"reason": "the network is gone"})

    monkeypatch.setattr(updates, "_fetch", fail)
    running = shell()
    section = about(running)
    section.check.click()
    assert section.status.text() == "Asking example.org …"
    assert not section.check.isEnabled()
    qtbot.waitUntil(section.check.isEnabled)
    assert section.status.text() == "It is not known. The network is gone. Try later."
    assert running.view.banner.isHidden()


def test_once_a_day_is_a_wish_and_reaches_the_disk(shell, qtbot, asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_desk, "FIRST_LOOK_MS", 300)
    running = shell()
    section = about(running)
    section.daily.click()
    path = running.app.engine.paths.settings_file
    qtbot.waitUntil(lambda: Settings(path).update_daily)
    running.window.updates.start()
    qtbot.waitUntil(lambda: asked == [FEED])
    qtbot.waitUntil(lambda: "9999.1 is out" in running.window.toast.text)
    monkeypatch.setattr(update_desk, "FIRST_LOOK_MS", 1)
    for _ in range(3):
        running.window.updates.start()
        qtbot.wait(20)
    assert asked == [FEED]
    running.close()
    # the next start knows it without asking
    second = shell()
    assert about(second).status.text().startswith("Inglenook 9999.1 of 2026-12-01 is out")
    assert asked == [FEED]


def test_a_failure_of_the_daily_question_is_not_shown(shell, qtbot, asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(feed: str) -> bytes:
        asked.append(feed)
        raise UpdateCheckFailed("no")

    monkeypatch.setattr(updates, "_fetch", fail)
    monkeypatch.setattr(update_desk, "FIRST_LOOK_MS", 1)
    running = shell(start=False)
    running.app.engine.settings.update_daily = True
    running.app.start()
    qtbot.waitUntil(lambda: bool(asked) and not running.window.updates.is_asking)
    assert running.window.toast.isHidden()
    assert about(running).status.text() == "Nobody was asked for a new version yet."


def test_without_an_address_it_says_so(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "built_in_feed", lambda: "")
    section = about(shell())
    assert section.status.text() == "This copy was built without an address to ask for new versions."
    assert not section.check.isEnabled()
    assert not section.daily.isEnabled()


def test_the_settings_say_where_the_data_lies_and_that_it_stays(shell, home: Path) -> None:
    running = shell()
    running.window.show_settings()
    data = running.window.settings_view.data
    assert "Removing Inglenook" in data.stays.text()
    assert "delete this folder" in data.stays.text()


def test_folders_that_lie_apart_are_all_named(tmp_path: Path) -> None:
    home = tmp_path / "data"
    apart = (tmp_path / "config", home / "logs", tmp_path / "cache", tmp_path / "cache" / "x")
    assert outside(home, apart) == [tmp_path / "config", tmp_path / "cache"]


# ------------------------------------------------------------------ an older version over a newer profile


def test_chats_of_a_newer_version_are_refused_in_words(shell, home: Path) -> None:
    """After a downgrade: the window opens, says what happened and what to do, and keeps what is typed."""
    paths = resolve(home).ensure()
    store = ChatStore(paths.database)
    store.create_chat("kept")
    store.close()
    with sqlite3.connect(paths.database) as other:
        other.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    other.close()
    before = paths.database.read_bytes()
    running = shell()
    running.wait(running.view.banner.isVisible)
    words = running.view.banner.words
    assert words.title == "These chats were written by a newer Inglenook"
    assert str(paths.database) in words.text
    assert words.hint == "Update Inglenook, or start with another home folder. The file was not changed."
    running.send("typed all the same")
    running.wait(running.view.banner.isVisible)
    assert running.view.banner.words.title == "These chats were written by a newer Inglenook"
    running.close()
    assert "typed all the same" in (paths.data / "drafts.json").read_text(encoding="utf-8")
    assert paths.database.read_bytes() == before


def test_other_files_of_a_newer_version_are_told_in_the_window(shell, home: Path) -> None:
    paths = resolve(home).ensure()
    (paths.data / "bench.json").write_text('{"schema": 99}')
    running = shell()
    running.wait(running.view.notice.isVisible)
    assert "A newer Inglenook has kept the measurements of models" in running.view.notice.words.text


@pytest.mark.parametrize("text", ['{"schema": 2, "chats": {"0": "later"}}', "{ damaged", "[1]", "[" * 9999])
def test_drafts_in_another_form_are_kept_under_another_name(shell, home: Path, text: str) -> None:
    paths = resolve(home).ensure()
    drafts = paths.data / "drafts.json"
    drafts.write_text(text)
    running = shell()
    running.view.composer.edit.setPlainText("new")
    running.wait(lambda: not drafts.exists() or "new" in drafts.read_text(encoding="utf-8"))
    running.close()
    assert "new" in drafts.read_text(encoding="utf-8")
    (kept,) = paths.data.glob("drafts.json.unread-*")
    assert kept.read_text() == text
