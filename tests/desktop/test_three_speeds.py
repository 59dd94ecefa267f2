"""Reading the prompt and writing the answer are never mixed up, and nothing is shown that was not measured.

A user of another program saw a tenth of the real speed, because the time of reading the prompt was counted in.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QWidget

from desktop.views.chat import message_footer
from desktop.widgets.figure_label import FigureLabel

PREFILL_S, DELAY_S, N = 2.0, 0.04, 43
SCRIPT = {
    "answers": [
        {"tokens": [" w"] * N, "prefill_s": PREFILL_S, "delay_s": DELAY_S, "n_prompt": 1000, "n_cached": 200},
        {"tokens": ["only"], "n_prompt": 10, "n_cached": 10},
        {"pieces": ["4g==", "gg==", "rA=="], "n_prompt": 10},  # three tokens, one character
    ]
}


def _panel(one: Any) -> Any:
    if not one.window.inside.monitor.wanted:
        one.view.header.monitor_button.click()
    dock = one.window.inside.monitor.dock
    one.wait(lambda: dock.isVisible())
    return dock.speed


def _rate(panel: QWidget) -> str:
    found = panel.findChild(FigureLabel, "monitor_rate")
    assert found is not None
    return str(found.text())


def _number(words: str) -> float:
    found = re.search(r"[\d.,]+", words)
    assert found is not None, words
    return float(found[0].replace(",", ""))


@pytest.mark.serial
def test_three_numbers_each_its_own(shell: Any, model_file: Path) -> None:
    """2 s of reading 800 new tokens, then 43 tokens, one each 40 ms: 2.0 s, 400 and 25 tokens a second."""
    one = shell(SCRIPT)
    one.window.resize(1366, 896)
    one.load(model_file)
    panel = _panel(one)
    one.send("Hello")
    one.wait(lambda: "reading the prompt" in panel.head.rows[0].value)
    assert _rate(panel) == "—", "nothing is written yet, so there is no speed of writing"
    one.wait(lambda: "live" in panel.head.rows[0].value)
    one.wait(lambda: one.at_rest(2), 60)
    one.wait(lambda: "last answer" in panel.head.rows[0].value)

    record = one.presenter.messages[-1].generation
    assert abs(record.timings.decode_tps - 1 / DELAY_S) <= 0.02 / DELAY_S
    assert abs(record.timings.ttft_s - PREFILL_S) <= 0.02 * PREFILL_S
    assert abs(_number(_rate(panel)) - 25) <= 0.5
    assert abs(_number(panel.rows.value_of("First token")) - PREFILL_S) <= 0.04
    label = "Prefill (800 new of 1,000)"
    assert abs(_number(panel.rows.value_of(label)) - 400) <= 12, "cached tokens are shown apart, and not counted"
    footer = message_footer.figures(one.presenter.messages[-1])
    assert "2.00 s to first token" in footer[0] or abs(_number(footer[0]) - 2.0) <= 0.04
    assert any(abs(_number(words) - 25) <= 0.5 for words in footer if "tok/s" in words)
    assert any(words.startswith(f"{N} token") for words in footer)


def test_one_token_has_no_speed_and_three_tokens_of_one_character_are_three(shell: Any, model_file: Path) -> None:
    script = {"answers": SCRIPT["answers"][1:]}
    one = shell(script)
    one.window.resize(1366, 896)
    one.load(model_file)
    panel = _panel(one)
    message = one.answer("Hello")
    assert message.generation.timings.decode_tps is None
    one.wait(lambda: "last answer" in panel.head.rows[0].value)
    assert _rate(panel) == "—"
    footer = message_footer.figures(message)
    assert not any("tok/s" in words for words in footer) and any(words == "1 token" for words in footer)
    _says_no_nonsense(one)

    message = one.answer("And now?")
    assert message.text == "€" and message.generation.usage.completion_tokens == 3
    page = one.window.inside.show("monitor").page("monitor")
    one.wait(lambda: "last answer" in page.speed.head.rows[0].value)
    one.wait(lambda: page.speed.rows.value_of("Tokens written") == "3")
    _says_no_nonsense(one)


def _says_no_nonsense(one: Any) -> None:
    """No infinity, no NaN, no negative figure anywhere on screen."""
    for widget in one.window.findChildren(QWidget):
        if widget.isVisible():
            text = getattr(widget, "text", None)
            words = f"{widget.accessibleDescription()} {text() if callable(text) else ''}".lower()
            assert not re.search(r"\b(nan|inf)\b|(?<![\w–])-\d", words), words
