"""After a sleep of the computer plans are made for what is there then."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from models_help import LAPTOP, NO_GPU, use_machine

from desktop import fit_sources
from engine.events import Resumed
from engine.fit.plan_records import Machine


def test_a_sleep_reaches_the_desk_which_looks_again(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch, LAPTOP)
    one = shell()
    desk = one.window.models.fit
    changes: list[Machine | None] = []
    desk.machine_changed.connect(lambda: changes.append(desk.machine))
    one.app.engine._emit(Resumed(slept_s=90.0))
    desk.look()
    one.wait(lambda: changes == [LAPTOP])
    use_machine(monkeypatch, NO_GPU)
    one.app.engine._emit(Resumed(slept_s=90.0))
    one.wait(lambda: changes == [LAPTOP, NO_GPU])
    one.app.engine._emit(Resumed(slept_s=90.0))  # the same again: plans are made anew all the same
    one.wait(lambda: changes == [LAPTOP, NO_GPU, NO_GPU])


def test_a_desk_that_was_never_asked_does_not_look(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    one = shell()
    monkeypatch.setattr(fit_sources.EngineFitter, "machine", lambda self: pytest.fail("looked"))
    desk = one.window.models.fit
    desk.renew()
    assert not desk._looking and desk.machine is None


def test_a_survey_from_before_the_sleep_does_not_count(shell, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    answers = [LAPTOP, NO_GPU]

    def survey(self: object) -> Machine:
        release.wait(20)
        return replace(answers.pop(0))

    monkeypatch.setattr(fit_sources.EngineFitter, "machine", survey)
    desk = (one := shell()).window.models.fit
    changes: list[Machine | None] = []
    desk.machine_changed.connect(lambda: changes.append(desk.machine))
    desk.look()
    desk.renew()
    release.set()
    one.wait(lambda: desk.machine is not None)
    assert changes == [NO_GPU]
    assert answers == []
