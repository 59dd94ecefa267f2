"""Engine threads and the GUI thread meet without loss, disorder or floods."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from PySide6.QtCore import QObject

import desktop
from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from desktop.watchdog import Heartbeat
from engine import events
from engine.errors import ModelNotFound


class Source:
    """The part of the engine that the bridge uses."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[events.Event], None]] = []

    def subscribe(self, callback: Callable[[events.Event], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def say(self, event: events.Event) -> None:
        for callback in list(self.callbacks):
            callback(event)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def bridge(qtbot, source: Source):
    made = EngineBridge(source)  # type: ignore[arg-type]
    yield made
    made.close()


def step(i: int) -> events.GenerationStep:
    token = events.Token(index=i, token_id=i, piece=b"x", text="x", time_s=i / 200)
    return events.GenerationStep(chat_id=1, message_id=2, step=token)


def test_events_arrive_on_the_gui_thread_in_order(qtbot, source, bridge) -> None:
    seen: list[int] = []
    threads: set[int] = set()

    def take(event: events.GenerationStep) -> None:
        seen.append(event.step.index)
        threads.add(threading.get_ident())

    bridge.generation_step.connect(take)
    thread = threading.Thread(target=lambda: [source.say(step(i)) for i in range(1000)])
    thread.start()
    thread.join()
    qtbot.waitUntil(lambda: len(seen) == 1000)
    assert seen == list(range(1000))
    assert threads == {threading.main_thread().ident}


def test_a_burst_wakes_the_event_loop_once(qtbot, source, bridge) -> None:
    n_wakes = 0

    def count() -> None:
        nonlocal n_wakes
        n_wakes += 1

    bridge._wake.connect(count)
    seen: list[object] = []
    bridge.generation_step.connect(seen.append)
    for i in range(2000):
        source.say(step(i))
    qtbot.waitUntil(lambda: len(seen) == 2000)
    assert n_wakes < 40, "a wake-up for each event would be 2000"


def test_a_long_batch_lets_the_event_loop_turn(qtbot, source, bridge) -> None:
    heartbeat = Heartbeat()
    seen: list[object] = []
    bridge.generation_step.connect(lambda e: (time.sleep(0.001), seen.append(e)))
    qtbot.wait(30)
    heartbeat.reset()
    for i in range(300):
        source.say(step(i))
    qtbot.waitUntil(lambda: len(seen) == 300, timeout=10_000)
    heartbeat.stop()
    assert heartbeat.longest_gap_s < 0.2, "0.3 s of work in one piece would stop the loop"


def test_byte_counts_above_two_gib_stay_what_they_are(qtbot, source, bridge) -> None:
    seen: list[events.Memory] = []
    bridge.memory_changed.connect(seen.append)
    source.say(events.Memory(rss_bytes=5_000_000_000, private_bytes=2_500_000_000))
    qtbot.waitUntil(lambda: bool(seen))
    assert (seen[0].rss_bytes, seen[0].private_bytes) == (5_000_000_000, 2_500_000_000)


def test_no_signal_of_ours_carries_bytes_as_int() -> None:
    root = Path(desktop.__file__).parent
    for file in root.rglob("*.py"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if re.search(r"=\s*Signal\([^)]*\bint\b", line):
                assert not re.search(r"byte|size|total|received|progress", line), f"{file.name}: {line.strip()}"


def test_a_result_comes_after_the_events_before_it(qtbot, source, bridge) -> None:
    order: list[str] = []
    bridge.chat_list_changed.connect(lambda _: order.append("event"))
    future: Future[int] = Future()
    bridge.run(future, lambda value: order.append(f"result {value}"))

    def work() -> None:
        source.say(events.ChatListChanged())
        future.set_result(7)

    threading.Thread(target=work).start()
    qtbot.waitUntil(lambda: len(order) == 2)
    assert order == ["event", "result 7"]


def test_a_failure_reaches_its_handler(qtbot, bridge) -> None:
    seen: list[BaseException] = []
    future: Future[int] = Future()
    bridge.run(future, lambda _: pytest.fail("no result"), seen.append)
    future.set_exception(ModelNotFound("gone"))
    qtbot.waitUntil(lambda: bool(seen))
    assert isinstance(seen[0], ModelNotFound)


def test_a_failure_without_handler_is_never_silent(qtbot, bridge, monkeypatch) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(kind))
    future: Future[int] = Future()
    bridge.run(future)
    future.set_exception(KeyError("bug"))
    qtbot.waitUntil(lambda: seen == [KeyError])


def test_a_bug_in_one_receiver_does_not_stop_the_next_event(qtbot, source, bridge, monkeypatch) -> None:
    caught: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: caught.append(kind))
    seen: list[object] = []

    def broken() -> None:
        raise ValueError("bug")

    bridge.post(broken)
    bridge.log_line.connect(seen.append)
    source.say(events.Log(level="info", text="x"))
    qtbot.waitUntil(lambda: len(seen) == 1)
    assert caught == [ValueError]


def test_nothing_is_called_for_an_owner_that_is_gone(qtbot, bridge) -> None:
    owner = QObject()
    future: Future[int] = Future()
    bridge.run(future, lambda _: pytest.fail("the owner is gone"), owner=owner)
    owner.deleteLater()
    qtbot.wait(20)
    future.set_result(1)
    qtbot.wait(30)


def test_after_close_nothing_is_delivered(qtbot, source, bridge) -> None:
    bridge.log_line.connect(lambda _: pytest.fail("closed"))
    source.say(events.Log(level="info", text="x"))
    bridge.close()
    source.say(events.Log(level="info", text="x"))
    assert source.callbacks == []
    qtbot.wait(30)


def test_tasks_run_elsewhere_and_answer_here(qtbot, bridge) -> None:
    tasks = Tasks(bridge)
    seen: list[tuple[int, int]] = []
    tasks.run(threading.get_ident, lambda ident: seen.append((ident, threading.get_ident())))
    qtbot.waitUntil(lambda: bool(seen))
    worker, here = seen[0]
    assert worker != here == threading.get_ident()
    tasks.close()
    tasks.run(lambda: pytest.fail("closed"))


def test_two_hundred_tokens_a_second_leave_no_gap(qtbot, source, bridge) -> None:
    seen: list[object] = []
    bridge.generation_step.connect(seen.append)
    heartbeat = Heartbeat()
    qtbot.wait(50)
    heartbeat.reset()

    def stream() -> None:
        for i in range(200):
            source.say(step(i))
            time.sleep(0.005)

    thread = threading.Thread(target=stream)
    thread.start()
    qtbot.waitUntil(lambda: len(seen) == 200, timeout=10_000)
    thread.join()
    heartbeat.stop()
    assert heartbeat.longest_gap_s < 0.3
