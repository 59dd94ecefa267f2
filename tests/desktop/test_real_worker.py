"""The window with the real model process: what is typed is answered, and no death of the process takes it along."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from heartbeat import Heartbeat

from engine.sampling import SamplingParams

QUESTION = "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled."
ENDLESS = SamplingParams(temperature=0.0, max_tokens=800, logit_bias={2: -1e9, 0: -1e9})


def test_from_a_key_press_to_an_answer_on_screen_and_on_disk(shell: Any, starter_model: Path) -> None:
    one = shell(real=True)
    one.result(one.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=40)))
    one.load(starter_model)
    edit = one.view.composer.edit
    one.qtbot.keyClicks(edit, QUESTION)
    from PySide6.QtCore import Qt

    one.qtbot.keyClick(edit, Qt.Key.Key_Return)
    one.wait(lambda: one.at_rest(2), 60)
    question, answer = one.presenter.messages
    assert question.text == QUESTION and answer.status == "complete" and answer.text.strip()
    one.view.transcript.flush()
    assert [m.text for m in one.view.transcript.model.messages] == [QUESTION, answer.text]
    with sqlite3.connect(one.app.engine.paths.database) as db:
        assert [r[0] for r in db.execute("SELECT role FROM messages ORDER BY id")] == ["user", "assistant"]


def test_a_search_hit_on_another_branch_shows_that_branch(shell: Any, starter_model: Path) -> None:
    one = shell(real=True)
    one.result(one.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=4)))
    one.load(starter_model)
    one.answer("The elephant asks.")
    first = one.presenter.messages[0]
    one.presenter.commands.edit(first.id, "The giraffe asks.")
    one.wait(lambda: one.presenter.messages[0].text == "The giraffe asks." and one.at_rest(2), 60)
    hits = one.result(one.app.engine.chats.search("elephant"))
    one.view.open_chat(hits[0].chat_id, hits[0].message_id)
    one.wait(lambda: bool(one.presenter.messages) and one.presenter.messages[0].text == "The elephant asks.", 60)


@pytest.mark.serial
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("phase", ["loading", "writing"])
@pytest.mark.parametrize("kind", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL], ids=lambda s: s.name)
def test_twenty_deaths(shell: Any, starter_model: Path, kind: signal.Signals, phase: str) -> None:
    """Each time: the window turns on, the text stays, a reload brings the model back."""
    one = shell(real=True)
    one.result(one.app.engine.change_settings(sampling=ENDLESS))
    control, engine = one.window.control, one.app.engine
    deaths = 0
    longest = 0.0
    while deaths < 20:
        if phase == "loading":
            control.load(starter_model)
            one.wait(lambda: engine.worker_pid is not None or control.state.status == "ready")
            time.sleep(random.uniform(0, 0.4))  # the greeting, the weights, the context
            pid = engine.worker_pid
            if pid is None or engine.model_state.status != "loading":
                continue
        else:
            if control.state.status != "ready":
                one.load(starter_model) if not deaths else one.result(engine.model.reload())
                one.wait(lambda: control.state.status == "ready")
            one.window.actions_["new_chat"].trigger()
            one.send(QUESTION)
            one.wait(lambda: one.presenter.streaming_id is not None)
            live = one.presenter._live[one.presenter.streaming_id]
            one.wait(lambda live=live: live.speeds.n_written > 5)
            pid = engine.worker_pid
        os.kill(pid, kind)
        with Heartbeat() as beat:
            begun = time.monotonic()
            one.wait(lambda: control.state.status == "failed" and not one.presenter.generating, 5)
            assert time.monotonic() - begun < 2.0
        longest = max(longest, beat.longest_s)
        assert kind.name in control.state.error.message
        if phase == "writing":
            assert one.presenter.messages[-1].status == "failed" and one.presenter.messages[-1].text
        deaths += 1
    assert longest < 0.5, f"the window stood still for {longest:.2f} s"
    one.result(one.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=8)))
    one.result(engine.model.reload())
    one.wait(lambda: control.state.status == "ready")
    one.window.actions_["new_chat"].trigger()
    assert one.answer("Hi").status == "complete"


@pytest.mark.serial
def test_a_bad_file_is_an_error_and_the_loaded_model_stays(shell: Any, starter_model: Path, tmp_path: Path) -> None:
    one = shell(real=True)
    one.load(starter_model)
    page = tmp_path / "saved page.gguf"
    page.write_text("<!DOCTYPE html><html></html>")
    failed: list[Any] = []
    one.window.control.failed.connect(failed.append)
    one.window.control.load(page)
    one.wait(lambda: bool(failed), 60)
    assert failed[0].code == "not_a_model" and one.window.control.state.status == "ready"
