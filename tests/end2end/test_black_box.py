"""A model process that dies while it works for the real engine: text kept, a report that can be shown, a safer load."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import black_box, events
from engine.errors import ModelNotLoaded
from engine.message import ChatSettings
from engine.sampling import SamplingParams

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
SECRET = "Zanzibarquartz"


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def crash(what: str) -> None:
        monkeypatch.setenv("INGLENOOK_TEST_HOOKS", "1")
        monkeypatch.setenv("INGLENOOK_TEST_CRASH", what)

    return crash


def test_a_death_while_writing(
    watched: Callable[..., Any], starter_model: Path, tmp_path: Path, hooks: Callable[[str], None]
) -> None:
    hooks("stream:abort:12")
    folder = tmp_path / f"{SECRET} Models"
    folder.mkdir()
    path = folder / f"{SECRET}.gguf"
    shutil.copy(starter_model, path)
    w = watched()
    w.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=64)).result(5)
    w.load(path)
    chat = w.engine.chats.create().result(5)
    w.engine.chats.set_settings(chat.id, ChatSettings(system_prompt=f"You are {SECRET}.")).result(5)
    _, answer = w.answer(f"Write a long story about {SECRET}, please.", chat.id)
    assert answer.status == "failed" and answer.text.strip(), "the text that was there is kept"
    error = w.engine.model_state.error
    assert error is not None and error.code == "worker_died"

    seen = black_box.last_seen(error)
    assert seen is not None and seen.crumb.stage == "sample" and seen.crumb.n_written == 11
    assert "At the end it was choosing the next token" in black_box.sentence(error)
    assert any(line.startswith("KV cache: ") for line in black_box.details(error))

    report = w.engine.black_box.report().result(10)
    file = tmp_path / "report.txt"
    w.engine.black_box.save_report(file).result(10)
    assert file.read_text(encoding="utf-8") == report
    for part in ("SIGABRT", "choosing the next token", "llama", "134,5", "n_ctx", "KV cache", "llama.cpp:"):
        assert part in report, part
    for word in (
        SECRET,
        SECRET.lower(),
        str(tmp_path),
        str(Path.home()),
        *(w for w in answer.text.split() if len(w) > 9),
    ):
        assert word not in report, word
    assert "load_tensors" in report or "llama_" in report, "llama.cpp's own lines are there"


def test_a_safer_load_gives_up_the_next_thing(
    watched: Callable[..., Any], starter_model: Path, hooks: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks("prefill:kill")
    w = watched()
    with pytest.raises(ModelNotLoaded):
        w.engine.black_box.report().result(5)
    assert w.engine.black_box.safer().result(5) == ()
    before = w.load(starter_model)
    w.answer("Hello")
    assert w.engine.model_state.status == "failed"
    monkeypatch.delenv("INGLENOOK_TEST_CRASH")

    given_up = w.engine.black_box.safer().result(10)
    assert given_up, "there is always something on a model that nobody has set options for"
    after = w.engine.black_box.reload_safer().result(60)
    assert _room(after) <= _room(before) * 0.92
    assert any("to be on the safe side" in words and given_up[0] in words for words in after.warnings)
    assert after.fit is not None and not after.fit.stepped_down
    _, answer = w.answer("Hello again")
    assert answer.status == "complete"

    second = w.engine.black_box.safer().result(10)
    assert second and second != given_up, "the ladder goes on from there"
    again = w.engine.model.reload().result(60)
    assert _room(again) == _room(before), "a plain reload is the load that the user wanted"


def test_what_the_user_has_chosen_is_not_given_up(
    watched: Callable[..., Any], starter_model: Path, hooks: Callable[[str], None]
) -> None:
    hooks("prefill:kill")
    w = watched()
    w.load(starter_model, n_ctx=2048, kv_type_k="f16", kv_type_v="f16", n_ubatch=128, flash_attention="on")
    w.answer("Hello")
    assert w.engine.black_box.safer().result(10) == ()
    with pytest.raises(ModelNotLoaded, match="nothing left"):
        w.engine.black_box.reload_safer()


def test_a_death_in_the_load(watched: Callable[..., Any], starter_model: Path, hooks: Callable[[str], None]) -> None:
    hooks("load:segv:0.3")
    w = watched()
    with pytest.raises(Exception, match="SIGSEGV"):
        w.load(starter_model)
    assert "At the end it was reading the weights (" in black_box.sentence(w.engine.model_state.error)
    report = w.engine.black_box.report().result(10)
    assert "it was not loaded yet" in report and "reading the weights" in report
    assert w.engine.black_box.safer().result(10), "also after a load that never ended"


def test_words_of_a_chat_in_the_log_stay_out_of_the_report(watched: Callable[..., Any], tmp_path: Path) -> None:
    """Whatever a driver or an exception prints: only lines of llama.cpp's own shape are shown."""
    lines = [f"the user wrote {SECRET}", f"prompt: {SECRET}", f"ValueError: {SECRET}", "GGML_ASSERT(n > 0) failed"]
    script = {"answers": [{"text": SECRET * 3, "fault": {"kind": "abort", "at": 2, "stderr": lines}}]}
    command = [sys.executable, "-m", "engine.worker.fake", "--script", json.dumps(script)]
    model = tmp_path / "Alabasterfox.gguf"
    model.write_bytes(b"GGUF")
    w = watched(worker_command=command)
    w.load(model)
    _, answer = w.answer(SECRET)
    assert answer.status == "failed"
    report = w.engine.black_box.report().result(10)
    assert model.stem not in report and "name: that of its file" in report
    assert SECRET not in report and "GGML_ASSERT(n > 0) failed" in report and "lines are left out" in report


def _room(info: events.ModelInfo) -> int:
    return sum(size for name, size in info.buffers.items() if name.endswith((" KV", " compute")))
