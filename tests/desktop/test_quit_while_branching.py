"""Quitting at any moment of a branch: the program ends in time, and what was written is there the next time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication
from test_trace_view import ASKED, opened

from engine.sampling import SamplingParams

#: how long closing may take: the model's process gets a moment to end by itself
END_S = 8.0


@pytest.mark.parametrize("moment", ["at once", "started", "writing", "replaying"])
def test_quitting_while_a_branch_is_written_loses_nothing(
    shell: Any, starter_model: Path, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = shell(real=True)
    one.app.engine.change_settings(sampling=SamplingParams(temperature=0.8, max_tokens=400, seed=7))
    one.load(starter_model)
    message = one.answer(ASKED)
    page, _ = opened(one, message)
    chats = one.app.engine.chats
    page.sections.written._choose(6)
    if moment == "replaying":
        page.open_replay()
        page.replay.ask()
    else:
        next(row for row in page.panel.alternatives.rows if not row.chosen).click()
    if moment in ("started", "writing"):
        one.wait(lambda: bool(chats.generating()))
    if moment == "writing":
        one.wait(lambda: page.desk.message_id != message.id)
        one.wait(lambda: page.desk.trace is not None and len(page.desk.trace.steps) > 12)
    began = time.monotonic()
    one.app.close()
    while not (one.app.ended and not one.app._poll.isActive()) and time.monotonic() - began < 30:
        QApplication.processEvents()
        time.sleep(0.005)
    assert one.app.ended and time.monotonic() - began < END_S
    assert not [r for r in caplog.records if r.levelname == "ERROR"]
    one.app.window.deleteLater()
    QApplication.processEvents()
    again = shell(real=True)
    _, branch = again.result(again.app.engine.chats.open(message.chat_id))
    assert branch[0].text == ASKED
    if branch[-1].id == message.id:  # it had not begun
        assert moment in ("at once", "replaying") and branch[-1].text == message.text
        return
    assert branch[-1].status in ("stopped", "interrupted") and branch[-1].n_versions == 2
    if moment == "writing":
        assert len(branch[-1].text) > 10
        trace = again.result(again.app.engine.traces.get(branch[-1].id))
        assert trace is None or len(trace.steps) >= 12
    _, shown = again.result(again.app.engine.chats.switch_version(branch[-1].id, -1))
    assert shown[-1].text == message.text, "the answer that was branched from is whole"
    again.window.inside.show_trace(message.id)
    view = again.window.inside.view.page("trace")
    again.wait(lambda: view.desk.trace is not None and len(view.desk.trace.steps) > 6)
