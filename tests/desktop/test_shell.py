"""The window end to end: real engine, real database, scripted model process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QDialog, QLabel, QPushButton

from desktop.models.chat_list import Role
from engine.events import GenerationFinished
from engine.message import Message

SLOW = {"answers": [{"text": "word " * 400, "delay_s": 0.01, "prefill_s": 0.2, "n_prompt": 900, "n_cached": 100}]}


def test_from_key_press_to_disk_and_screen(shell, model_file: Path, qtbot) -> None:
    one = shell({"answers": [{"text": "Because its **limit** was too low.", "prefill_s": 0.1, "n_prompt": 40}]})
    one.load(model_file)
    qtbot.keyClicks(one.view.composer.edit, "Why did my pod restart?")
    qtbot.keyClick(one.view.composer.edit, Qt.Key.Key_Return)
    one.wait(lambda: one.at_rest(2))
    assert one.view.composer.text() == ""
    assert one.view.stack.currentWidget() is one.view.transcript
    chat, branch = one.result(one.app.engine.chats.open(one.presenter.chat_id))
    assert [m.text for m in branch] == ["Why did my pod restart?", "Because its **limit** was too low."]
    one.wait(lambda: one.window.chat_list.model.rowCount() == 2)
    assert one.window.chat_list.model.index(1).data() == chat.title
    assert one.window.chat_list.view.currentIndex().data(Role.CHAT_ID) == chat.id
    strip = one.view.strip
    timings = branch[1].generation.timings
    assert strip.text_of("ttft") == f"first token {timings.ttft_s:.2f} s"
    assert strip.text_of("decode") == f"decode {timings.decode_tps:,.1f} tok/s" or timings.decode_tps >= 1000
    used = branch[1].generation.usage.prompt_tokens + branch[1].generation.usage.completion_tokens
    assert f"{used:,} of 8,192 tokens · room for {8192 - used:,}" == strip.context.text()


def test_the_prompt_is_read_then_the_answer_is_written(shell, model_file: Path) -> None:
    one = shell(SLOW)
    one.load(model_file)
    texts: list[str] = []
    one.view.strip.refreshed.connect(lambda _: texts.append(one.view.strip.context.text()))
    one.send("go")
    one.wait(lambda: one.view.header.rate.text() != "")
    assert any(text.startswith("reading the prompt") and "of 900" in text for text in texts)
    assert one.view.composer.stop.isVisible()
    assert 20 < float(one.view.header.rate.text().split()[0]) <= 100
    one.view.presenter.stop()
    one.wait(lambda: not one.presenter.generating)


def test_esc_stops_and_keeps_the_text(shell, model_file: Path, qtbot) -> None:
    one = shell(SLOW)
    one.load(model_file)
    one.send("go")
    one.wait(lambda: len(one.presenter._live) == 1 and next(iter(one.presenter._live.values())).speeds.n_written > 10)
    qtbot.keyClick(one.window, Qt.Key.Key_Escape)
    start = time.monotonic()
    one.wait(lambda: not one.presenter.generating)
    assert time.monotonic() - start < 1.0
    last: Message = one.presenter.messages[-1]
    assert last.status == "stopped"
    assert last.generation.finish_reason == "cancelled"
    assert last.text.startswith("word word")


def test_without_a_model_the_list_of_models_opens_and_the_text_stays(shell) -> None:
    one = shell()
    assert "No model is loaded" in one.view.composer.hint.text()
    assert one.view.stack.currentWidget() is one.view.empty
    assert one.view.empty.action.isVisible()
    one.send("hello")
    assert one.view.popup.isVisible()
    assert one.view.composer.text() == "hello"
    one.view.popup.hide()


def test_sending_loads_the_last_model_first(shell, model_file: Path) -> None:
    one = shell({"answers": [{"text": "here"}]})
    one.result(one.app.engine.change_settings(last_model=str(model_file)))
    one.view._show_hint()
    assert "sending loads one first" in one.view.composer.hint.text()
    assert one.answer("hello").text == "here"


def test_loading_shows_real_progress_and_can_be_cancelled(shell, model_file: Path) -> None:
    one = shell({"load": {"seconds": 20, "steps": 200}})
    one.window.control.load(model_file)
    one.wait(lambda: (one.window.control.state.fraction or 0) > 0.01)
    details = one.view.header.picker.words()[1]
    assert details.startswith("loading ") and details.endswith("%")
    one.view.open_picker()
    popup = one.view.popup
    assert popup.progress.isVisible() and popup.cancel.isVisible() and not popup.unload.isVisible()
    popup.cancel.click()
    one.wait(lambda: one.window.control.state.status != "loading")
    popup.hide()
    assert one.view.banner.words is None, "what the user wanted is no error"


def test_a_load_that_fails_says_what_and_what_to_do(shell, model_file: Path) -> None:
    error = {"code": "not_enough_memory", "message": "5.1 GiB are needed, 2.0 GiB are free.", "hint": "Take Q4_K_M."}
    one = shell({"load": {"error": error}})
    one.window.control.load(model_file)
    one.wait(lambda: one.window.control.state.status == "failed")
    one.wait(lambda: one.view.banner.isVisible())
    shown = [label.text() for label in one.view.banner.findChildren(QLabel) if label.isVisible()]
    assert shown == ["Not enough memory for this model", error["message"], error["hint"]]


def test_a_file_that_is_not_there_is_an_error_in_words(shell) -> None:
    one = shell()
    one.window.control.load("/nowhere/at-all.gguf")
    one.wait(lambda: one.view.banner.words is not None)
    assert one.view.banner.words.title == "The model file is not there"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("kind", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL], ids=lambda s: s.name)
def test_the_death_of_the_model_process_keeps_text_and_window(shell, model_file: Path, kind: signal.Signals) -> None:
    one = shell(SLOW)
    one.load(model_file)
    one.send("go")
    one.wait(lambda: one.presenter.streaming_id is not None)
    live = one.presenter._live[one.presenter.streaming_id]
    one.wait(lambda: live.speeds.n_written > 20)
    os.kill(one.app.engine.worker_pid, kind)
    one.wait(lambda: one.view.banner.isVisible() and not one.presenter.generating)
    assert one.view.banner.words.title == "The model process ended"
    assert one.presenter.messages[-1].status == "failed"
    assert one.presenter.messages[-1].text.startswith("word word")
    one.view.banner.findChild(QPushButton, "banner_action").click()
    one.wait(lambda: one.window.control.state.status == "ready")
    assert one.view.banner.words is None
    one.send("on we go")
    one.wait(lambda: one.presenter.generating)


def test_a_chat_can_be_left_and_opened_again_in_the_middle_of_an_answer(shell, model_file: Path) -> None:
    tokens = [f"{i} " for i in range(300)]
    one = shell({"answers": [{"tokens": tokens, "delay_s": 0.01}]})
    one.load(model_file)
    one.send("count")
    one.wait(lambda: one.presenter.streaming_id is not None)
    chat_id, message_id = one.presenter.chat_id, one.presenter.streaming_id
    live = one.presenter._live[message_id]
    one.wait(lambda: live.speeds.n_written > 20)
    one.window.actions_["new_chat"].trigger()
    assert not one.presenter.generating
    assert one.view.composer.send.isVisible()
    assert one.view.stack.currentWidget() is one.view.empty
    index = one.window.chat_list.model.index_of(chat_id)
    assert index.data(Role.IS_WRITING)
    one.view.open_chat(chat_id)
    one.wait(lambda: bool(one.presenter.messages))
    shown = one.presenter.messages[-1].text
    assert shown == "".join(tokens)[: len(shown)] and len(shown) > 40, "nothing between the disk and now is missing"
    assert one.presenter.generating
    one.wait(lambda: not one.presenter.generating)
    one.view.transcript.flush()
    assert one.presenter.messages[-1].text == "".join(tokens)
    assert one.view.transcript.model.messages[-1].text == "".join(tokens)
    assert not one.window.chat_list.model.index_of(chat_id).data(Role.IS_WRITING)


def test_versions_edit_regenerate_and_back(shell, model_file: Path) -> None:
    one = shell({"answers": [{"text": "first"}, {"text": "second"}, {"text": "third"}]})
    one.load(model_file)
    first = one.answer("question")
    one.window.actions_["regenerate"].trigger()
    one.wait(lambda: one.presenter.messages[-1].text == "second" and not one.presenter.generating)
    assert len(one.presenter.messages) == 2
    assert (one.presenter.messages[-1].version, one.presenter.messages[-1].n_versions) == (2, 2)
    one.presenter.commands.switch_version(one.presenter.messages[-1].id, -1)
    one.wait(lambda: one.presenter.messages[-1].id == first.id)
    assert (one.presenter.messages[-1].version, one.presenter.messages[-1].n_versions) == (1, 2)
    one.presenter.commands.edit(one.presenter.messages[0].id, "another question")
    one.wait(lambda: one.presenter.messages[-1].text == "third" and not one.presenter.generating)
    assert [m.text for m in one.presenter.messages] == ["another question", "third"]
    assert one.presenter.messages[0].n_versions == 2
    one.window.actions_["copy_answer"].trigger()
    assert QGuiApplication.clipboard().text() == "third"


def test_ctrl_up_edits_the_last_message(shell, model_file: Path) -> None:
    one = shell({"answers": [{"text": "yes"}]})
    one.load(model_file)
    one.answer("question")
    one.window.actions_["edit_last"].trigger()
    one.wait(lambda: one.view.transcript.widgets[one.presenter.messages[0].id].editor is not None)


def test_a_deleted_message_comes_back_with_what_followed(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.answer("one")
    one.answer("two")
    ids = [m.id for m in one.presenter.messages]
    one.presenter.commands.delete(ids[2])
    one.wait(lambda: [m.id for m in one.presenter.messages] == ids[:2])
    one.wait(lambda: one.window.toast.isVisible())
    one.window.toast.undo()
    one.wait(lambda: [m.id for m in one.presenter.messages] == ids)


def test_drafts_are_kept_for_each_chat_and_over_a_restart(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.answer("one")
    chat_id = one.presenter.chat_id
    one.view.composer.edit.setPlainText("half a thought")
    one.window.actions_["new_chat"].trigger()
    assert one.view.composer.text() == ""
    one.view.composer.edit.setPlainText("another half")
    one.view.open_chat(chat_id)
    assert one.view.composer.text() == "half a thought"
    one.close()
    two = shell()
    two.wait(lambda: two.presenter.chat_id == chat_id)  # the chat that was open is open again
    two.wait(lambda: two.view.composer.text() == "half a thought")
    two.window.actions_["new_chat"].trigger()
    assert two.view.composer.text() == "another half"


def test_a_dropped_gguf_is_loaded_and_other_files_are_not(shell, model_file: Path, tmp_path: Path) -> None:
    one = shell()

    def drop(path: Path) -> bool:
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(path))])
        copy, left, none = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        enter = QDragEnterEvent(QPointF(5, 5), copy, data, left, none)
        enter.ignore()
        one.window.dragEnterEvent(enter)
        if not enter.isAccepted():
            return False
        one.window.dropEvent(QDropEvent(QPointF(5, 5), copy, data, left, none))
        return True

    assert not drop(tmp_path / "notes.txt")
    assert drop(model_file)
    one.wait(lambda: one.window.control.state.status == "ready")
    assert one.window.control.state.path == str(model_file)


def test_a_second_start_brings_the_window_up_with_its_file(shell, model_file: Path) -> None:
    one = shell()
    one.window.showMinimized()
    one.app.on_second_start([str(model_file)])
    assert not one.window.isMinimized()
    one.wait(lambda: one.window.control.state.status == "ready")


@pytest.mark.parametrize("moment", ["idle", "loading", "streaming"])
def test_closing_ends_cleanly_and_loses_nothing(shell, model_file: Path, moment: str, home: Path) -> None:
    one = shell(SLOW | {"load": {"seconds": 0.0 if moment != "loading" else 20.0}})
    if moment == "loading":
        one.window.control.load(model_file)
        one.wait(lambda: one.window.control.state.status == "loading")
    elif moment == "streaming":
        one.load(model_file)
        one.send("go")
        one.wait(lambda: one.presenter.streaming_id is not None)
        live = one.presenter._live[one.presenter.streaming_id]
        one.wait(lambda: live.speeds.n_written > 30)
    pid = one.app.engine.worker_pid
    start = time.monotonic()
    one.window.close()
    assert not one.window.isVisible(), "the window goes at once"
    one.close()
    assert time.monotonic() - start < 5
    if pid is not None:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    if moment == "streaming":
        two = shell()
        two.wait(lambda: len(two.presenter.messages) == 2)
        assert two.presenter.messages[1].status == "stopped"
        assert two.presenter.messages[1].text.count("word") >= 30


def test_a_bug_becomes_a_dialog_and_the_window_lives_on(shell, model_file: Path) -> None:
    one = shell()
    error = ZeroDivisionError("division by zero")
    one.app.excepthook(ZeroDivisionError, error, None)
    one.app.excepthook(ZeroDivisionError, error, None)
    dialogs = [w for w in QApplication.topLevelWidgets() if w.objectName() == "error_dialog" and w.isVisible()]
    assert len(dialogs) == 1, "one at a time"
    dialogs[0].findChild(QPushButton, "copy_report").click()
    report = QGuiApplication.clipboard().text()
    assert "ZeroDivisionError: division by zero" in report and "Python" in report
    dialogs[0].close()
    one.wait(lambda: one.app._dialog is None)
    one.load(model_file)


def test_status_figures_of_memory_are_measured(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.wait(lambda: "MiB" in one.view.strip.text_of("worker"))
    assert re.fullmatch(r"app \d+ MiB", one.view.strip.text_of("window"))
    assert re.fullmatch(r"model [\d.]+ MiB", one.view.strip.text_of("worker"))
    one.window.control.unload()
    one.wait(lambda: one.view.strip.text_of("worker") == "model —")


def test_finished_answers_of_other_chats_do_not_touch_this_one(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    answer = one.answer("one")
    one.window.actions_["new_chat"].trigger()
    one.presenter._on_finished(GenerationFinished(chat_id=answer.chat_id, message=answer))
    assert one.presenter.messages == []


def test_a_notice_of_the_engine_is_shown_and_can_be_closed(shell, home: Path) -> None:
    settings = home / "config" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{ damaged")
    one = shell()
    one.wait(lambda: one.view.notice.isVisible())
    assert "settings" in one.view.notice.words.text
    one.view.notice.findChild(QPushButton, "banner_close").click()
    assert not one.view.notice.isVisible()


CLOSE_WHILE_WRITING = """
import json, sys
from pathlib import Path
import desktop
from PySide6.QtCore import QTimer
from desktop import app

script = {"answers": [{"text": "word " * 2000, "delay_s": 0.005}], "load": {"seconds": float(sys.argv[4])}}
command = [sys.executable, "-m", "engine.worker.fake", "--script", json.dumps(script)]
real_start = app.Application.start

def start(self):
    real_start(self)
    def send():
        self.window.chat_view.composer.edit.setPlainText("go")
        self.window.chat_view.composer.submit()
    QTimer.singleShot(300, send)
    QTimer.singleShot(int(sys.argv[3]), self.window.close)

app.Application.start = start
options = app.Options(home=Path(sys.argv[1]), model=sys.argv[2], theme="light")
sys.exit(app.run(options, sys.argv[:1], worker_command=command))
"""


@pytest.mark.parametrize(("close_ms", "load_s"), [(1500, 0.0), (1100, 0.0), (700, 5.0), (310, 0.0), (1, 0.0)])
def test_a_process_that_is_closed_in_the_middle_ends_with_zero_and_in_silence(
    home: Path, model_file: Path, close_ms: int, load_s: float
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSE_WHILE_WRITING, str(home), str(model_file), str(close_ms), str(load_s)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_open_chat_is_on_disk_soon_after_it_was_switched(shell, model_file: Path, home: Path) -> None:
    """What a killed program leaves says which chat was in use, not the one of the last clean end."""
    one = shell()
    one.load(model_file)
    file = one.app.engine.paths.config / "window.ini"

    def stored() -> str:
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return next((line.partition("=")[2] for line in lines if line.startswith("last_chat=")), "")

    one.answer("first")
    first = one.presenter.chat_id
    one.wait(lambda: stored() == str(first))
    one.view.new_chat()
    one.wait(lambda: stored() == "0")
    one.answer("second")
    one.view.open_chat(first)
    one.wait(lambda: stored() == str(first))
    left = {path: path.read_bytes() for path in (file, *one.app.engine.paths.data.glob("chats.db*"))}
    one.close()
    for path, content in left.items():  # as a kill would have left it
        path.write_bytes(content)
    again = shell()
    again.wait(lambda: again.presenter.chat_id == first and len(again.presenter.messages) == 2)


def test_the_settings_of_a_chat_close_with_its_view(shell) -> None:
    one = shell()
    for action in ("view_settings", "view_models"):
        one.window.show_chat()
        one.window.commands.open_chat_settings()
        dialog = one.window.findChild(QDialog, "chat_settings")
        dialog.system_prompt.setPlainText("Be brief.")
        assert dialog.isVisible()
        one.window.actions_[action].trigger()
        one.wait(lambda: one.window.findChild(QDialog, "chat_settings") is None)
    one.wait(lambda: one.presenter.chat is not None and one.presenter.chat.settings.system_prompt == "Be brief.")


def test_a_question_whose_answer_was_deleted_can_be_answered(shell, model_file: Path) -> None:
    one = shell({"answers": [{"text": "first"}, {"text": "second"}]})
    one.load(model_file)
    answer = one.answer("question")
    one.presenter.commands.delete(answer.id)
    one.wait(lambda: len(one.presenter.messages) == 1)
    one.wait(lambda: one.window.actions_["regenerate"].isEnabled())
    footer = one.view.transcript.widgets[one.presenter.messages[0].id].footer
    footer.show_actions(True)
    footer._buttons["regenerate"].click()
    one.wait(lambda: one.at_rest(2))
    assert one.presenter.messages[1].text == "second"
