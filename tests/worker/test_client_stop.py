"""Stop with a deadline: a request always ends, by the worker or without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from worker_fakes import generate, load_request, running, until

from engine import events
from engine.worker import protocol
from engine.worker.client import WorkerClient

WORDS = [f" w{i}" for i in range(40)]


def n_timers() -> int:
    return sum(isinstance(thread, threading.Timer) for thread in threading.enumerate())


LONG = {"tokens": WORDS * 200, "delay_s": 0.005}


@pytest.mark.parametrize(
    ("plan", "wait_for"),
    [
        ({"prefill_s": 30.0, "n_prompt": 4000}, events.PromptProgress),
        (LONG, events.Token),
    ],
    ids=["prefill", "writing"],
)
def test_stop_a_generation(plan: dict[str, object], wait_for: type[events.Event]) -> None:
    with running({"answers": [plan]}, load=True) as (client, seen):
        request = generate(client)
        client.send(request)
        seen.wait(wait_for, request.id)
        begin = time.monotonic()
        client.stop_request(request.id, 5.0)
        client.stop_request(request.id, 5.0)
        done = seen.wait(events.Done, request.id)
        assert time.monotonic() - begin < 1.0
        assert done.finish_reason == "cancelled" and done.text == seen.text(request.id)
        assert until(lambda: n_timers() == 0, 1.0)
        client.stop_request(request.id)  # it has ended: nothing happens
        client.stop_request("unknown")
        assert client.ping() is not None


def test_stop_a_load_and_load_again() -> None:
    with running("slow_load") as (client, seen):
        request = load_request(client)
        client.send(request)
        seen.wait(events.LoadProgress, request.id)
        client.stop_request(request.id)
        assert seen.wait(events.Error, request.id, timeout_s=1.0).error.code == "cancelled"
        assert client.ping() is not None


Start = Callable[[WorkerClient], protocol.Request]


@pytest.mark.parametrize(
    ("script", "load", "start", "doing"),
    [
        ({"load": {"seconds": 60, "ignore_stop": True}}, False, load_request, "loading SmolLM2-135M"),
        ({"answers": [{"prefill_s": 60, "ignore_stop": True}]}, True, generate, "reading the prompt"),
        ({"answers": [LONG | {"ignore_stop": True}]}, True, generate, "writing an answer"),
        ({"answers": [{"fault": {"kind": "hang", "at": 3}, "ignore_stop": True}]}, True, generate, "writing an answer"),
    ],
    ids=["loading", "prefill", "writing", "hung"],
)
def test_a_worker_that_ignores_stop_is_ended(script: dict[str, object], load: bool, start: Start, doing: str) -> None:
    with running(script, load=load) as (client, seen):
        request = start(client)
        client.send(request)
        assert until(lambda: client.doing == doing)
        begin = time.monotonic()
        client.stop_request(request.id, 0.4)
        time.sleep(0.1)
        client.stop_request(request.id, 60.0)  # asking again does not put the deadline off
        assert n_timers() == 1
        error = seen.wait(events.Error, request.id)
        assert 0.3 < time.monotonic() - begin < 1.5
        expected = f"The worker did not react to Stop within 0.4 s while {doing} and was ended"
        assert error.error.code == "worker_died" and error.error.message == expected
        exited = seen.wait(events.WorkerExited)
        assert not exited.expected and exited.error == error.error


def test_a_hung_worker_does_not_answer_a_ping_and_can_be_killed() -> None:
    with running({"answers": [{"fault": {"kind": "hang"}}]}, load=True) as (client, seen):
        client.send(generate(client))
        seen.wait(events.PromptProgress)
        assert until(lambda: client.ping(0.1) is None)
        client.kill("did not answer for 10 s")
        exited = seen.wait(events.WorkerExited)
        assert exited.error is not None and exited.error.message.startswith("The worker did not answer for 10 s while")
