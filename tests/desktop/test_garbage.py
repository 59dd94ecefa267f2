"""Cyclic garbage is collected by the window, in its own thread, and fully only while nothing is written."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from desktop.garbage import GarbageCollector


class Knot:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_it_takes_over_and_gives_back(qapp, restored: None) -> None:
    one = GarbageCollector(lambda: False)
    one.start()
    assert not gc.isenabled() and gc.get_freeze_count() > 0
    one.stop()
    assert gc.isenabled() and gc.get_freeze_count() == 0
    one.start()  # a program that ends while it starts
    assert gc.isenabled()


def test_a_thread_that_makes_garbage_does_not_collect_it(qapp, restored: None) -> None:
    one = GarbageCollector(lambda: False)
    one.start()
    seen: list[int] = []
    callback = lambda phase, info: seen.append(threading.get_ident())  # noqa: E731
    gc.callbacks.append(callback)
    thread = threading.Thread(target=lambda: [Knot() for _ in range(50_000)])
    thread.start()
    thread.join()
    assert not seen
    one.look()
    gc.callbacks.remove(callback)
    assert seen and set(seen) == {threading.get_ident()}
    one.stop()


def test_old_garbage_waits_for_a_quiet_moment(qapp, restored: None, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [True]
    one = GarbageCollector(lambda: busy[0])
    one.start()
    knot = weakref.ref(Knot())
    gc.collect(1)  # it is old now
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 11))
    old = weakref.ref(Knot())
    one.look()
    assert old() is not None
    busy[0] = False
    one.look()
    assert knot() is None and old() is None
    one.stop()
