"""After a death: what happened in words, a reload, a safer one, a report in a file and on the clipboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QPushButton, QWidget

from desktop.widgets.wrap_row import WrapRow
from engine.sampling import SamplingParams

DEATH = {"answers": [{"tokens": [" w"] * 50, "delay_s": 0.002, "fault": {"kind": "abort", "at": 20}}]}


def _button(one: Any, name: str) -> QPushButton:
    found: QPushButton | None = one.view.banner.findChild(QPushButton, name)
    assert found is not None, name
    return found


def _die(one: Any) -> None:
    one.send("Hello")
    one.wait(lambda: one.view.banner.isVisible() and not one.presenter.generating)


def test_a_death_is_said_and_a_report_can_be_kept(shell: Any, model_file: Path, tmp_path: Path) -> None:
    one = shell(DEATH)
    one.load(model_file)
    _die(one)
    words = one.view.banner.words
    assert "SIGABRT" in words.text and "At the end it was computing a step of 1 token for 1 answer" in words.text
    assert "written so far: 20 tokens" in words.details and "crumb" not in words.details
    assert one.presenter.messages[-1].text.strip(), "the text is kept"

    save = _button(one, "save_report")
    save.click()
    dialog = one.window.findChild(QFileDialog, "save_report_dialog")
    one.wait(lambda: dialog.isVisible())
    assert one.view.banner.isVisible(), "the offers stay while a file is chosen"
    file = tmp_path / "report.txt"
    dialog.fileSelected.emit(str(file))
    dialog.close()
    one.wait(file.exists)
    one.wait(lambda: "report.txt" in one.window.toast.text)
    report = file.read_text(encoding="utf-8")
    assert "SIGABRT" in report and "Hello" not in report and str(model_file) not in report

    _button(one, "banner_copy").click()
    one.wait(lambda: QGuiApplication.clipboard().text() == report.replace(_made(report), _made(_clip())))


def _clip() -> str:
    return QGuiApplication.clipboard().text()


def _made(report: str) -> str:
    """The line that says how much memory was free when a report was made: it differs from one to the next."""
    return next((line for line in report.splitlines() if "when this report was made" in line), "-")


def test_a_report_that_cannot_be_saved_is_said(shell: Any, model_file: Path, tmp_path: Path) -> None:
    one = shell(DEATH)
    one.load(model_file)
    _die(one)
    one.view.crash.save(str(tmp_path / "no folder" / "report.txt"))
    one.wait(lambda: one.view.notice.isVisible())
    assert one.view.banner.isVisible(), "what helps after the death is still there"


@pytest.mark.serial
def test_a_safer_load_from_the_banner(shell: Any, starter_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGLENOOK_TEST_HOOKS", "1")
    monkeypatch.setenv("INGLENOOK_TEST_CRASH", "stream:kill:3")
    one = shell(real=True)
    one.result(one.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=8)))
    one.load(starter_model)
    _die(one)
    one.wait(lambda: one.view.banner.findChild(QPushButton, "reload_safer") is not None)
    safer = _button(one, "reload_safer")
    assert safer.isVisible() and "with less memory: " in safer.toolTip()
    assert _button(one, "banner_action").nextInFocusChain() is safer
    monkeypatch.delenv("INGLENOOK_TEST_CRASH")
    safer.click()
    one.wait(lambda: one.window.control.state.status == "ready", 60)
    assert not one.view.banner.isVisible()
    assert one.answer("Hello again").status == "complete"


def test_other_errors_offer_what_they_did(shell: Any, tmp_path: Path) -> None:
    one = shell(real=True)
    one.window.control.load(tmp_path / "nowhere.gguf")
    one.wait(lambda: one.view.banner.words is not None)
    assert one.view.banner.findChild(QPushButton, "save_report") is None


def test_a_row_goes_on_in_the_next_line(qtbot: Any) -> None:
    box = QWidget()
    qtbot.addWidget(box)
    row = WrapRow(box)
    buttons = [QPushButton(text) for text in ("Reload", "Reload safer", "Details", "Save report…")]
    for button in buttons[:-1]:
        row.addWidget(button)
    row.insert(1, buttons[-1])
    box.resize(QSize(2000, 100))
    box.show()
    order = [buttons[0], buttons[3], buttons[1], buttons[2]]
    assert [b.x() for b in order] == sorted(b.x() for b in order) and len({b.y() for b in order}) == 1
    one_line = row.heightForWidth(2000)
    narrow = row.minimumSize().width()
    assert row.heightForWidth(narrow) >= 4 * buttons[0].sizeHint().height()
    box.resize(QSize(narrow, 400))
    assert len({b.y() for b in order}) == 4
    buttons[2].hide()
    assert row.heightForWidth(narrow) < row.count() * one_line + 3 * row.spacing()
    assert row.takeAt(99) is None and row.itemAt(-1) is None


def test_panels_show_nothing_old_after_a_death(shell: Any, model_file: Path) -> None:
    """The monitor beside the chat and the trace: what was there of the dead process is not shown as if it were now."""
    one = shell(DEATH)
    one.window.resize(QSize(1366, 896))
    one.load(model_file)
    one.view.header.monitor_button.click()
    monitor = one.window.inside.monitor
    one.wait(lambda: monitor.dock is not None and monitor.dock.isVisible())
    _die(one)
    one.wait(lambda: not monitor.feed.runs and monitor.feed.model is None)
    assert monitor.feed.kv is None and monitor.feed.decode_now is None
    one.wait(lambda: monitor.feed.sample is not None and monitor.feed.sample.worker is None)
    assert "live" not in monitor.dock.speed.head.rows[0].value
    answer = one.presenter.messages[-1]
    one.window.inside.show_trace(answer.id)
    one.wait(lambda: one.window.inside.view.shown == "trace")
    trace = one.result(one.app.engine.traces.get(answer.id))
    assert trace is not None and len(trace.steps) == 20 and trace.parts() == ()
