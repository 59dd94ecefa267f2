"""The heartbeat measures gaps; the watchdog says what made them."""

from __future__ import annotations

import logging
import time

from desktop.watchdog import Heartbeat, Watchdog


def hold_up_the_loop(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        time.sleep(0.005)


def test_the_heartbeat_measures_the_longest_gap(qtbot) -> None:
    heartbeat = Heartbeat()
    qtbot.wait(100)
    heartbeat.reset()
    qtbot.wait(100)
    quiet = heartbeat.longest_gap_s
    hold_up_the_loop(0.2)
    qtbot.wait(50)
    heartbeat.stop()
    assert heartbeat.n_beats >= 5
    assert quiet < 0.15 <= heartbeat.longest_gap_s < 1.0


def test_a_gap_that_is_not_over_yet_counts(qtbot) -> None:
    heartbeat = Heartbeat()
    qtbot.wait(30)
    heartbeat.reset()
    hold_up_the_loop(0.1)
    assert heartbeat.longest_gap_s >= 0.1
    heartbeat.stop()


def test_the_watchdog_names_the_culprit_once(qtbot, caplog) -> None:
    heartbeat = Heartbeat()
    qtbot.wait(30)
    watchdog = Watchdog(heartbeat, limit_s=0.1)
    try:
        logging.getLogger("inglenook").propagate = True
        with caplog.at_level(logging.WARNING, logger="inglenook.watchdog"):
            hold_up_the_loop(0.4)
            qtbot.wait(100)
    finally:
        watchdog.stop()
        heartbeat.stop()
    assert watchdog.n_reports == 1
    assert "hold_up_the_loop" in caplog.text
