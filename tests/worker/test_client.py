"""The conversation with a worker process: greeting, requests, stop, and what a bad worker cannot do."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from worker_fakes import TIMEOUT_S, Recorder, command, generate, load_request, make, pid_runs, running, until

from engine import errors, events
from engine.message import PromptMessage
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient, default_command

WORDS = [f" w{i}" for i in range(40)]


def test_a_whole_conversation() -> None:
    with running({"answers": [{"tokens": WORDS, "delay_s": 0.001}]}) as (client, seen):
        assert client.alive and client.pid is not None and pid_runs(client.pid)
        loaded = client.request(load_request(client), TIMEOUT_S)
        assert isinstance(loaded, events.Loaded) and loaded.model.name == "SmolLM2-135M"
        request = generate(client)
        done = client.request(request, TIMEOUT_S)
        assert isinstance(done, events.Done)
        assert done.text == "".join(WORDS) == seen.text(request.id)
        assert [t.index for t in seen.of(events.Token)] == list(range(40))
        assert done.usage.completion_tokens == 40
        tokens = client.request(protocol.Tokenize(id=client.new_id(), text="a b"), TIMEOUT_S)
        assert isinstance(tokens, events.Tokenized)
        seconds = client.ping(TIMEOUT_S)
        assert seconds is not None and seconds < 2
        assert isinstance(client.request(protocol.Unload(id=client.new_id()), TIMEOUT_S), events.Unloaded)
        assert client.doing == ""
    assert isinstance(seen.events[0], events.Hello)
    assert seen.events[-1] == events.WorkerExited(expected=True)
    assert not client.alive and client.pid is None
    client.stop()


def test_an_error_event_is_raised_by_its_class() -> None:
    with running("out_of_memory") as (client, seen):
        with pytest.raises(errors.NotEnoughMemory) as caught:
            client.request(load_request(client), TIMEOUT_S)
        assert caught.value.details["need_bytes"] > 0 and caught.value.hint
        with pytest.raises(errors.ModelNotLoaded):
            client.request(generate(client), TIMEOUT_S)
        assert len(seen.of(events.Error)) == 2


def test_on_event_has_seen_the_answer_before_request_returns() -> None:
    with running(load=True) as (client, seen):
        for _ in range(50):
            ping = protocol.Ping(id=client.new_id())
            client.request(ping, TIMEOUT_S)
            assert seen.of(events.Pong, ping.id)


def test_requests_from_many_threads() -> None:
    with running({"answers": [{"tokens": WORDS, "delay_s": 0.0005}]}, load=True) as (client, _):
        texts: list[str] = []

        def ask() -> None:
            done = client.request(generate(client), TIMEOUT_S)
            assert isinstance(done, events.Done)
            texts.append(done.text)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert texts == ["".join(WORDS)] * 8


# ------------------------------------------------------------------ greeting


@pytest.mark.parametrize(
    "script",
    [
        {"protocol": protocol.PROTOCOL_VERSION + 1},
        {"protocol": 0},
        {"hello": False, "before_hello": ['{"type":"hello","protocol":"9.1","all":"new"}']},
    ],
)
def test_another_protocol_version_is_refused(script: dict[str, object]) -> None:
    client, seen = make(script)
    with pytest.raises(errors.WorkerMismatch) as caught:
        client.start(TIMEOUT_S)
    assert caught.value.details["ours"] == protocol.PROTOCOL_VERSION
    assert not client.alive and seen.events == []
    with pytest.raises(errors.WorkerDied):
        client.send(protocol.Ping(id="1"))


def test_no_greeting_within_the_time() -> None:
    client, seen = make({"hello": False, "ignore_eof": True, "stderr": ["loading the driver"]})
    begin = time.monotonic()
    with pytest.raises(errors.WorkerDied, match="did not start within"):
        client.start(0.6)
    assert time.monotonic() - begin < 2.0
    assert not client.alive and seen.events == []


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ({"start_fault": {"kind": "sigill"}}, errors.BackendMissing, "CPU lacks"),
        ({"start_fault": {"kind": "abort"}}, errors.WorkerDied, "SIGABRT"),
        ({"start_fault": {"kind": "exit", "stderr": ["no such driver"]}}, errors.WorkerDied, "no such driver"),
        (
            {"hello_error": {"code": "backend_missing", "message": "libllama.so is missing", "hint": "Install it."}},
            errors.BackendMissing,
            "libllama",
        ),
    ],
)
def test_death_before_the_greeting(script: dict[str, object], error: type[errors.EngineError], words: str) -> None:
    client, seen = make(script)
    with pytest.raises(errors.EngineError, match=words) as caught:
        client.start(TIMEOUT_S)
    assert type(caught.value) is error and caught.value.hint
    assert seen.events == [] and not client.alive


def test_a_program_that_is_not_there() -> None:
    seen = Recorder()
    client = WorkerClient(seen, command=["/no/such/program"])
    with pytest.raises(errors.WorkerDied, match="could not be started"):
        client.start()
    client.stop()
    assert seen.events == [] and client.pid is None


def test_a_start_can_be_stopped() -> None:
    client, _ = make({"hello_delay_s": 30})
    threading.Timer(0.3, client.stop, (1.0,)).start()
    begin = time.monotonic()
    with pytest.raises(errors.Cancelled):
        client.start()
    assert time.monotonic() - begin < 3
    assert not client.alive


def test_stop_before_start_is_quiet() -> None:
    client, seen = make()
    client.stop()
    with pytest.raises(errors.Cancelled):
        client.start()
    assert seen.events == []


# ------------------------------------------------------------------ the process


def test_found_from_any_folder_and_never_mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("engine", "engine/worker"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(66)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH")
    with running() as (client, _):
        assert os.path.samefile(f"/proc/{client.pid}/cwd", tmp_path) or sys.platform != "linux"
        assert client.ping() is not None


def test_default_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_command() == [sys.executable, "-m", "engine.worker"]
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert default_command() == [sys.executable, "--worker"]


@pytest.mark.skipif(os.name != "posix", reason="sessions are POSIX")
def test_ctrl_c_in_the_terminal_does_not_reach_the_worker() -> None:
    with running() as (client, _):
        assert client.pid is not None
        assert os.getsid(client.pid) != os.getsid(0)


def test_the_worker_outlives_the_thread_that_started_it() -> None:
    # Linux sends the parent-death signal when the starting thread ends, not the process
    client, seen = make()
    thread = threading.Thread(target=client.start)
    thread.start()
    thread.join(TIMEOUT_S)
    time.sleep(0.3)
    assert client.ping() is not None
    client.stop()
    assert seen.events[-1] == events.WorkerExited(expected=True)


# ------------------------------------------------------------------ sending


def test_a_worker_that_does_not_read_never_blocks_the_caller() -> None:
    with running({"answers": [{"fault": {"kind": "hang"}}]}, load=True) as (client, seen):
        client.send(generate(client))
        seen.wait(events.PromptProgress)
        assert until(lambda: client.ping(0.1) is None)
        big = "x" * 4_000_000
        begin = time.monotonic()
        for _ in range(5):
            client.send(generate(client, big))
        assert time.monotonic() - begin < 1.0
        begin = time.monotonic()
        client.stop(1.0)
        assert time.monotonic() - begin < 1.3
        assert not client.alive


def test_what_cannot_be_sent_is_refused() -> None:
    with running() as (client, _):
        with pytest.raises(errors.InvalidRequest):
            client.send(protocol.Tokenize(id="1", text="x" * protocol.MAX_LINE_BYTES))
        with pytest.raises(errors.InvalidRequest):
            client.send(protocol.Tokenize(id="1", text="half a character \ud83d"))
        with pytest.raises(errors.InvalidRequest):
            client.send(protocol.Load(id="1", path="/models/\udcff.gguf"))
        assert client.doing == ""
        with pytest.raises(ValueError):
            client.request(protocol.Stop(id="1", target="2"), 1)


def test_a_ban_by_minus_infinity_reaches_the_worker() -> None:
    with running(load=True) as (client, _):
        sampling = SamplingParams(logit_bias={5: float("-inf"), 6: 1.0})
        request = protocol.Generate(id="g", messages=(PromptMessage("user", "x"),), sampling=sampling)
        assert isinstance(client.request(request, 5.0), events.Done)


def test_an_id_is_used_once_at_a_time() -> None:
    with running({"pong": False}) as (client, _):
        client.send(protocol.Ping(id="a"))
        with pytest.raises(ValueError):
            client.send(protocol.Ping(id="a"))


def test_request_times_out_and_its_answer_still_comes() -> None:
    with running({"load": {"seconds": 0.5}}) as (client, seen):
        request = load_request(client)
        with pytest.raises(errors.Busy):
            client.request(request, 0.1)
        assert client.doing == "loading SmolLM2-135M"
        seen.wait(events.Loaded, request.id)


# ------------------------------------------------------------------ on_event


def test_a_reader_that_raises_does_not_end_the_stream() -> None:
    seen = Recorder()

    def reader(event: events.Event) -> None:
        seen(event)
        raise RuntimeError("a bug in a reader")

    client = WorkerClient(reader, command=command())
    client.start(TIMEOUT_S)
    assert client.ping() is not None and client.ping() is not None
    client.stop()
    assert isinstance(seen.events[-1], events.WorkerExited)


def test_what_may_be_called_inside_on_event() -> None:
    done = threading.Event()
    caught: list[BaseException] = []

    def reader(event: events.Event) -> None:
        if isinstance(event, events.Hello):
            client.send(protocol.Ping(id="from inside"))
            try:
                client.request(protocol.Ping(id="blocking"), 1)
            except RuntimeError as error:
                caught.append(error)
        elif isinstance(event, events.Pong):
            client.stop()
        elif isinstance(event, events.WorkerExited):
            done.set()

    client = WorkerClient(reader, command=command())
    client.start(TIMEOUT_S)
    assert done.wait(5) and len(caught) == 1


def test_a_slow_reader_loses_nothing_when_the_worker_dies() -> None:
    seen = Recorder()

    def reader(event: events.Event) -> None:
        if isinstance(event, events.Token) and event.index >= 5:
            # the first time longer than the patience with a pipe that brings nothing
            time.sleep(1.5 if event.index == 5 else 0.01)
        seen(event)

    script = {"answers": [{"tokens": WORDS, "delay_s": 0, "fault": {"kind": "sigkill", "at": 30}}]}
    client = WorkerClient(reader, command=command(script))
    client.start(TIMEOUT_S)
    client.request(load_request(client), TIMEOUT_S)
    client.send(generate(client))
    seen.wait(events.WorkerExited)
    assert [t.index for t in seen.of(events.Token)] == list(range(30))
    assert isinstance(seen.events[-1], events.WorkerExited)


# ------------------------------------------------------------------ noise


def test_noise_on_the_output_is_dropped() -> None:
    noise = ["garbage", "", "{", '{"type":"token"}', "[" * 50_000, "null", "\x1b[31mred\x00", '{"type":"pong"']
    script = {
        "before_hello": noise,
        "answers": [{"tokens": WORDS, "delay_s": 0, "garbage_every": 1, "garbage": '{"type":"token","te'}],
    }
    with running(script, load=True) as (client, _):
        done = client.request(generate(client), TIMEOUT_S)
        assert isinstance(done, events.Done) and done.text == "".join(WORDS)
        assert any("garbage" in line for line in client.log_tail)


def test_an_oversized_line_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_LINE_BYTES", 10_000)
    script = {"answers": [{"tokens": WORDS, "delay_s": 0, "garbage_every": 7, "garbage": "x" * 20_000}]}
    with running(script, load=True) as (client, seen):
        request = generate(client)
        client.send(request)
        assert seen.wait(events.Done, request.id).text == "".join(WORDS) == seen.text(request.id)


def test_native_lines_are_kept_up_to_a_limit() -> None:
    with running({"stderr": [f"line {i}" for i in range(500)] + ["y" * 100_000]}) as (client, _):
        assert until(lambda: len(client.log_tail) == 200 and client.log_tail[-2] == "line 499")
        assert len(client.log_tail[-1]) <= 2000
