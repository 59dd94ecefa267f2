"""A worker that dies takes nothing with it: every request ends, the text so far is there, no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from worker_fakes import TIMEOUT_S, Recorder, command, generate, load_request, make, pid_runs, quick, running, until

from engine import errors, events
from engine.worker import protocol
from engine.worker.client import WorkerClient

ROOT = Path(__file__).resolve().parents[2]
WORDS = [f" w{i}" for i in range(40)]
ASSERTION = "GGML_ASSERT(n_tokens <= n_batch) failed"
NAMES_OF = {"abort": "SIGABRT", "sigsegv": "SIGSEGV", "sigkill": "SIGKILL"}
NAMES = list(NAMES_OF.values())

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


def _check_death(seen: Recorder, request_id: str, name: str, doing: str) -> None:
    exited = seen.wait(events.WorkerExited)
    ends = seen.of(events.Error, request_id)
    assert len(ends) == 1
    info = ends[0].error
    assert info.code == "worker_died" and name in info.message and info.message.endswith(f" while {doing}")
    assert info.details["signal"] == name and info.details["doing"] == doing
    assert ASSERTION in info.details["log"]
    assert not exited.expected and exited.error == info
    assert seen.events[-1] is exited and len(seen.of(events.WorkerExited)) == 1


def _die_loading(name: str, client: WorkerClient, seen: Recorder) -> None:
    client.start(TIMEOUT_S)
    pid = client.pid
    request = load_request(client)
    begin = time.monotonic()
    client.send(request)
    _check_death(seen, request.id, name, "loading SmolLM2-135M")
    assert time.monotonic() - begin < 2.0
    assert seen.of(events.LoadProgress, request.id)
    assert not client.alive and pid is not None and not pid_runs(pid)
    with pytest.raises(errors.WorkerDied, match=name):
        client.send(protocol.Ping(id=client.new_id()))
    client.stop()


def _die_writing(name: str, client: WorkerClient, seen: Recorder) -> None:
    request = generate(client)
    client.send(request)
    _check_death(seen, request.id, name, "writing an answer")
    assert seen.text(request.id) == "".join(WORDS[:25])
    assert not client.alive
    client.stop()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("when", ["loading", "writing"])
def test_killed_twenty_times(name: str, when: str) -> None:
    def once() -> None:
        client, seen = quick(signal.Signals[name], when, ASSERTION, WORDS[:25])
        if when == "loading":
            _die_loading(name, client, seen)
        else:
            client.start(TIMEOUT_S)
            _die_writing(name, client, seen)

    with ThreadPoolExecutor(4) as pool:
        for result in [pool.submit(once) for _ in range(20)]:
            result.result()


@pytest.mark.parametrize(("kind", "name"), NAMES_OF.items())
def test_the_scripted_worker_dies_as_told(kind: str, name: str) -> None:
    load = {"seconds": 0.02, "fault": {"kind": kind, "at": 0.5, "stderr": [ASSERTION]}}
    _die_loading(name, *make({"load": load}))
    fault = {"kind": kind, "at": 25, "stderr": [ASSERTION]}
    client, seen = make({"answers": [{"tokens": WORDS, "delay_s": 0.0005, "fault": fault}]})
    client.start(TIMEOUT_S)
    client.request(load_request(client), TIMEOUT_S)
    _die_writing(name, client, seen)


def test_the_error_of_a_death_reaches_who_waits() -> None:
    with running({"load": {"seconds": 0.1, "fault": {"kind": "abort", "at": 0.5}}}) as (client, _):
        with pytest.raises(errors.WorkerDied, match="SIGABRT") as caught:
            client.request(load_request(client), TIMEOUT_S)
        assert caught.value.details["exit_code"] == -6


def test_every_open_request_ends_once() -> None:
    script = {
        "answers": [{"prefill_s": 60}, {"prefill_s": 60}, {"tokens": WORDS * 50, "fault": {"kind": "abort", "at": 5}}]
    }
    with running(script, load=True) as (client, seen):
        requests = [generate(client) for _ in range(3)]
        for request in requests:
            client.send(request)
        exited = seen.wait(events.WorkerExited)
        assert [e.request_id for e in seen.of(events.Error)] == [r.id for r in requests]
        assert exited.error is not None
        assert exited.error.message.endswith("while writing an answer and reading the prompt")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "exit", "exit_code": 3, "stderr": ["driver gone"]}, "exit code 3 (driver gone)"),
        ({"kind": "raise"}, "exit code 1 (RuntimeError: scripted failure)"),
        ({"kind": "sigill"}, "The CPU lacks an instruction that llama.cpp used (SIGILL) while loading"),
        ({"kind": "abort", "stderr": ["cudaMalloc failed: out of memory"]}, "ran out of memory (SIGABRT)"),
        ({"kind": "close"}, "closed its output while loading SmolLM2-135M and was ended"),
    ],
    ids=lambda x: x["kind"] if isinstance(x, dict) else "",
)
def test_other_ends(fault: dict[str, Any], words: str) -> None:
    with running({"load": {"fault": fault}}) as (client, seen):
        client.send(load_request(client))
        exited = seen.wait(events.WorkerExited)
        assert exited.error is not None and words in exited.error.message


def test_an_exit_that_nobody_asked_for_is_a_death_even_with_code_zero() -> None:
    with running({"load": {"fault": {"kind": "exit", "exit_code": 0}}}) as (client, seen):
        client.send(load_request(client))
        exited = seen.wait(events.WorkerExited)
        assert not exited.expected and exited.error is not None and "without being asked" in exited.error.message


def test_a_helper_of_the_worker_that_holds_the_pipes_does_not_hold_up_the_report() -> None:
    program = textwrap.dedent("""
        import os, signal, subprocess, sys
        helper = subprocess.Popen(["sleep", "30"])
        print('{"type":"hello","protocol":VERSION,"engine":"test","pid":%d}' % helper.pid, flush=True)
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    """).replace("VERSION", str(protocol.PROTOCOL_VERSION))
    seen = Recorder()
    client = WorkerClient(seen, command=[sys.executable, "-c", program])
    helper = client.start(TIMEOUT_S).pid
    try:
        client.send(protocol.Ping(id="1"))
        exited = seen.wait(events.WorkerExited, timeout_s=5.0)
        assert exited.error is not None and "SIGKILL" in exited.error.message
    finally:
        os.kill(helper, signal.SIGKILL)


# ------------------------------------------------------------------ stop()


@pytest.mark.parametrize(
    "script",
    [
        {"ignore_eof": True, "answers": [{"fault": {"kind": "hang", "at": 3}}]},
        {"ignore_eof": True, "ignore_sigterm": True, "answers": [{"fault": {"kind": "hang", "at": 3}}]},
        {"ignore_eof": True, "ignore_sigterm": True, "answers": [{"tokens": WORDS * 100, "ignore_stop": True}]},
    ],
    ids=["hung", "hung and deaf", "writing and deaf"],
)
def test_stop_never_takes_longer_than_its_time(script: dict[str, Any]) -> None:
    client, seen = make(script)
    client.start(TIMEOUT_S)
    client.request(load_request(client), TIMEOUT_S)
    pid = client.pid
    request = generate(client)
    client.send(request)
    seen.wait(events.Token, n=3)
    begin = time.monotonic()
    client.stop(1.0)
    assert time.monotonic() - begin < 1.2
    assert pid is not None and not pid_runs(pid)
    assert seen.of(events.Error, request.id)[0].error.code == "cancelled"
    assert seen.events[-1] == events.WorkerExited(expected=True)


def test_stop_from_many_threads() -> None:
    client, seen = make()
    client.start(TIMEOUT_S)
    threads = [threading.Thread(target=client.stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert len(seen.of(events.WorkerExited)) == 1 and not client.alive


CLOSE_WHILE_WRITING = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {tests!r})
import psutil
from worker_fakes import TIMEOUT_S, generate, load_request, make
from engine import events

def once(_):
    client, seen = make({{"answers": [{{"tokens": [" word"] * 5000, "delay_s": 0.001}}]}})
    client.start(TIMEOUT_S)
    client.request(load_request(client), TIMEOUT_S)
    client.send(generate(client))
    seen.wait(events.Token, n=5)
    client.stop()
    assert seen.events[-1] == events.WorkerExited(expected=True), seen.events[-1]

with ThreadPoolExecutor(2) as pool:
    list(pool.map(once, range(20)))
assert psutil.Process().children() == []
print("clean")
"""


def test_closing_while_writing_leaves_nothing_and_says_nothing() -> None:
    program = CLOSE_WHILE_WRITING.format(tests=str(Path(__file__).parent))
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "clean\n", "")


def test_a_program_that_ends_without_stop_leaves_no_worker_and_says_nothing() -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from worker_fakes import TIMEOUT_S, generate, load_request, make
from engine import events
client, seen = make({{"answers": [{{"tokens": [" word"] * 5000}}]}})
print(client.start(TIMEOUT_S).pid, flush=True)
client.request(load_request(client), TIMEOUT_S)
client.send(generate(client))
seen.wait(events.Token, n=5)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert until(lambda: not pid_runs(int(ended.stdout)), 2.0)


# ------------------------------------------------------------------ the parent dies


PARENT = """
import sys, threading, time
from engine.worker.client import WorkerClient
client = WorkerClient(lambda event: None, command=sys.argv[1:])
thread = threading.Thread(target=client.start)
thread.start()
thread.join()
print(client.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux")
@pytest.mark.parametrize("script", [{}, {"ignore_eof": True, "ignore_sigterm": True}], ids=["plain", "deaf"])
def test_no_orphan_after_the_parent_is_killed(script: dict[str, Any]) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *command(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert pid_runs(pid)
    finally:
        parent.kill()
        parent.communicate()
    assert until(lambda: not pid_runs(pid), 2.0)


def test_the_end_of_input_ends_the_worker() -> None:
    child = subprocess.Popen(command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ)
    assert child.stdout is not None and b"hello" in child.stdout.readline()
    child.communicate(timeout=5)
    assert child.returncode == 0
    assert not [p for p in psutil.Process().children() if p.pid == child.pid]
