"""Commands that come faster than their results: nothing is done to a chat that is not the one on screen."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any


def hold(one: Any) -> threading.Event:
    """Keep the engine's thread busy until the event is set, so that results come late."""
    go = threading.Event()
    one.app.engine._thread.submit(go.wait, 20)
    return go


def test_a_chat_that_is_gone_when_it_is_opened_leaves_an_empty_one(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    first = one.answer("one").chat_id
    one.window.actions_["new_chat"].trigger()
    second = one.answer("two").chat_id
    one.result(one.app.engine.chats.delete(first))
    one.view.open_chat(first)
    one.wait(lambda: one.view.banner.isVisible())
    assert one.presenter.chat_id is None and one.presenter.messages == []
    assert one.view.transcript._model.messages == [] and one.view.stack.currentWidget() is one.view.empty
    answer = one.answer("three")
    assert answer.chat_id not in (first, second)


def test_two_messages_at_once_make_one_chat(shell, model_file: Path) -> None:
    """The second stays in the composer, as while an answer is written."""
    one = shell()
    one.load(model_file)
    go = hold(one)
    one.send("first")
    one.send("second")
    go.set()
    one.wait(lambda: one.at_rest(2))
    assert len(one.result(one.app.engine.chats.list())) == 1
    assert one.view.composer.text() == "second" and not one.view.banner.isVisible()
    one.view.composer.submit()
    one.wait(lambda: len(one.presenter.messages) == 4)
    assert [m.text for m in one.presenter.messages if m.role == "user"] == ["first", "second"]


def test_the_window_takes_the_chat_of_its_own_message(shell, model_file: Path) -> None:
    """A new chat is left for another new one before its message is stored; each message makes its own chat."""
    one = shell()
    one.load(model_file)
    go = hold(one)
    one.send("first")
    one.window.actions_["new_chat"].trigger()
    one.send("second")
    go.set()
    one.wait(lambda: one.at_rest(2))
    assert [m.text for m in one.presenter.messages if m.role == "user"] == ["second"]
    assert len(one.result(one.app.engine.chats.list())) == 2


def test_a_new_chat_that_was_left_for_an_old_one_does_not_come_back(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    old = one.answer("old").chat_id
    one.window.actions_["new_chat"].trigger()
    go = hold(one)
    one.send("new")
    one.view.open_chat(old)
    go.set()
    one.wait(lambda: len(one.presenter.messages) == 2)
    one.wait(lambda: not one.app.engine.chats.generating())
    assert one.presenter.chat_id == old and one.presenter.messages[0].text == "old"


def test_a_version_deleted_behind_the_one_on_screen_is_not_counted(shell, model_file: Path) -> None:
    """Asked again and deleted in one breath: the new answer is on screen when the old one goes."""
    one = shell()
    one.load(model_file)
    old = one.answer("one")
    go = hold(one)
    one.presenter.commands.regenerate(old.id)
    one.presenter.commands.delete(old.id)
    go.set()
    one.wait(lambda: one.presenter.messages[-1].id != old.id and one.at_rest(2))
    one.wait(lambda: one.presenter.messages[-1].n_versions == 1)
    shown = one.view.transcript._model.messages[-1]
    assert (shown.version, shown.n_versions) == (1, 1)


def test_a_search_hit_on_another_branch_waits_for_the_answer(shell, model_file: Path) -> None:
    """Clicked while an answer is being written, the chat is shown as it is, with the reason; nothing is lost."""
    one = shell({"answers": [{"text": "first"}, {"text": "word " * 400, "delay_s": 0.02}]})
    one.load(model_file)
    one.answer("The elephant asks.")
    asked = one.presenter.messages[0]
    one.presenter.commands.edit(asked.id, "The giraffe asks.")
    one.wait(lambda: one.presenter.streaming_id is not None)
    one.view.open_chat(asked.chat_id, asked.id)
    one.wait(lambda: one.view.banner.isVisible())
    one.wait(lambda: one.presenter.chat_id == asked.chat_id and len(one.presenter.messages) == 2)
    assert one.presenter.messages[0].text == "The giraffe asks." and one.presenter.generating
    one.presenter.stop()
    one.wait(lambda: one.at_rest(2))
    one.view.open_chat(asked.chat_id, asked.id)
    one.wait(lambda: bool(one.presenter.messages) and one.presenter.messages[0].text == "The elephant asks.")
