"""The scripted worker measures what it does; what it says can be believed by tests of the front end."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import pytest
from worker_fakes import TIMEOUT_S, generate, load_request, make, running

from engine import events
from engine.worker import fake_script
from engine.worker.client import WorkerClient


@pytest.mark.serial
def test_rates_and_times_are_those_of_the_clock() -> None:
    answer = {"prefill_s": 2.0, "n_prompt": 400, "n_cached": 100, "tokens": [" x"] * 43, "delay_s": 0.04}
    with running({"answers": [answer]}, load=True) as (client, seen):
        request = generate(client)
        done = client.request(request, TIMEOUT_S)
        assert isinstance(done, events.Done)
        assert done.timings.ttft_s == pytest.approx(2.0, rel=0.02)
        assert done.timings.prefill_s == pytest.approx(2.0, rel=0.02)
        assert done.timings.prefill_tps == pytest.approx(300 / 2.0, rel=0.02)
        assert done.timings.decode_s == pytest.approx(42 * 0.04, rel=0.02)
        assert done.timings.decode_tps == pytest.approx(25.0, rel=0.02)
        assert (done.usage.prompt_tokens, done.usage.cached_tokens, done.usage.completion_tokens) == (400, 100, 43)
        progress = seen.of(events.PromptProgress, request.id)
        assert len(progress) == 21 and progress[0].n_done == 100 and progress[-1].n_done == 400
        assert [p.n_done for p in progress] == sorted(p.n_done for p in progress)
        memory = seen.wait(events.Memory, n=2)
        assert memory.kv_used_cells == 443 and memory.rss_bytes > 1_000_000


def test_one_token_has_no_rate_and_split_characters_count_as_tokens() -> None:
    pieces = [base64.b64encode(p).decode() for p in (b"\xe6", b"\xbc", b"\xa2")]
    script = {"answers": [{"tokens": ["x"]}, {"pieces": pieces, "delay_s": 0.01}]}
    with running(script, load=True) as (client, seen):
        one = client.request(generate(client), TIMEOUT_S)
        assert isinstance(one, events.Done)
        assert one.timings.decode_tps is None and one.timings.decode_s == 0 and one.usage.completion_tokens == 1
        request = generate(client)
        split = client.request(request, TIMEOUT_S)
        assert isinstance(split, events.Done)
        assert split.text == "漢" and split.usage.completion_tokens == 3
        assert [t.text for t in seen.of(events.Token, request.id)] == ["", "", "漢"]
        assert b"".join(t.piece for t in seen.of(events.Token, request.id)) == "漢".encode()


def test_thinking_and_a_limit() -> None:
    with running({"answers": [{"reasoning": "Let me see. Yes.", "text": "Forty two.", "delay_s": 0}]}, load=True) as (
        client,
        seen,
    ):
        request = generate(client)
        done = client.request(request, TIMEOUT_S)
        assert isinstance(done, events.Done)
        assert (done.reasoning, done.text, done.reasoning_tag) == ("Let me see. Yes.", "Forty two.", "think")
        assert done.reasoning_closed and 0 < done.reasoning_tokens < done.usage.completion_tokens
        assert {t.channel for t in seen.of(events.Token, request.id)} == {"text", "reasoning"}
        cut = client.request(generate(client, max_tokens=3, seed=7), TIMEOUT_S)
        assert isinstance(cut, events.Done)
        assert cut.finish_reason == "length" and cut.usage.completion_tokens == 3 and cut.seed == 7
        assert cut.text == "" and not cut.reasoning_closed


def test_two_hundred_tokens_a_second() -> None:
    with running({"answers": [{"tokens": [" x"] * 101, "delay_s": 0.005}]}, load=True) as (client, _):
        done = client.request(generate(client), TIMEOUT_S)
        assert isinstance(done, events.Done)
        assert done.timings.decode_tps == pytest.approx(200, rel=0.05)


def test_the_long_answer_is_three_thousand_tokens_of_markdown() -> None:
    tokens = fake_script.long_answer()
    text = "".join(tokens)
    assert len(tokens) == 3_000 and "```python\n" in text and "| Field |" in text and "\n- " in text
    assert fake_script.NAMED["long"].answers[0].tokens == tokens


@pytest.mark.parametrize("text", ["", "a  b\n\n\tc", "漢字, né?! ...", "__x__ = {'k': [1]}\r\n", "👩‍👩‍👧 \u00a0"])
def test_cutting_loses_nothing(text: str) -> None:
    assert "".join(fake_script.cut(text)) == text


def test_scripts_come_from_a_file_a_name_text_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"load": {"n_ctx": 1234}}), encoding="utf-8")
    for source in (str(path), path.read_text(encoding="utf-8")):
        with running(source) as (client, _):
            loaded = client.request(load_request(client), TIMEOUT_S)
            assert isinstance(loaded, events.Loaded) and loaded.model.n_ctx == 1234
    seen: list[events.Event] = []
    command = make()[0]._pipes._command[:3]
    client = WorkerClient(seen.append, command=command, env={fake_script.ENV: "out_of_memory"})
    client.start(TIMEOUT_S)
    client.send(load_request(client))
    client.stop()
    for name in fake_script.NAMED:
        assert msgspec.json.decode(msgspec.json.encode(fake_script.NAMED[name]), type=fake_script.Script)


def test_a_misspelled_script_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        fake_script.load_script('{"answer": []}')
