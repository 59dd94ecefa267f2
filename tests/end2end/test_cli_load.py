"""`inglenook chat` plans its load as the window does, tells what came of it, and remembers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_runner import events, run

from engine.cli_load import CliLoad
from engine.cli_worker import CliWorker
from engine.errors import NotEnoughMemory
from engine.events import Event
from engine.fit.before_load import LoadPlanner
from engine.worker import protocol


def loaded(*words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = run(
        "chat", "-m", "starter", "-p", "Hi", "--temperature", "0", "--max-tokens", "4", "--json", *words, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    [event] = [event for event in events(done) if event["type"] == "loaded"]
    found: dict[str, Any] = event["model"]
    return found


def test_the_plan_stands_beside_what_it_took_and_is_kept(starter_model: Path, home: Path) -> None:
    model = loaded()
    fit = model["fit"]
    assert fit["verdict"] in ("cpu", "gpu", "split") and fit["reasons"] and fit["decode_tps_high"] > 0
    host = fit["devices"][-1]
    assert host["name"] == "Host" and host["measured_kv_bytes"] > 0
    assert abs(fit["error"]) < 0.05
    kept = json.loads(next(home.rglob("fit.json")).read_text())
    assert {result["device"] for result in kept["memory"]} <= {device["name"] for device in fit["devices"]}
    assert kept["memory"] and all(result["measured_bytes"] > 0 for result in kept["memory"])


@pytest.mark.parametrize("words", [("--context", "512"), ("--gpu-layers", "0")])
def test_what_the_user_chooses_goes_as_it_is(starter_model: Path, home: Path, words: tuple[str, str]) -> None:
    model = loaded(*words)
    assert model.get("fit") is None and (words[0] != "--context" or model["n_ctx"] == 512)
    assert not list(home.rglob("fit.json"))


def test_a_profile_that_cannot_be_written_keeps_no_model_from_loading(starter_model: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run("chat", "-m", "starter", "-p", "Hi", "--max-tokens", "2", env={"INGLENOOK_HOME": str(blocked / "home")})
    assert done.returncode == 0 and done.stdout


class _Worker(CliWorker):
    """Loads nothing: the first `failures` loads find too little memory."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.requests: list[protocol.Request] = []
        self.hello = SimpleNamespace(devices=())  # type: ignore[assignment]

    def run(self, request: protocol.Request) -> Iterator[Event]:
        self.requests.append(request)
        if len(self.requests) <= self.failures:
            raise NotEnoughMemory("too little memory", hint="no")
        yield Event(request_id=request.id)


def test_too_little_memory_is_tried_once_more_with_less(starter_model: Path, home: Path) -> None:
    notes: list[str] = []
    request = protocol.Load(id="load", path=str(starter_model), n_slots=1)
    worker = _Worker(1)
    assert len(list(CliLoad(worker, request, notes.append).events())) == 1
    first, second = worker.requests
    assert isinstance(first, protocol.Load) and isinstance(second, protocol.Load) and first != second
    assert len(notes) == 1 and "Given up" in notes[0]
    with pytest.raises(NotEnoughMemory) as error:
        list(CliLoad(_Worker(2), request, notes.append).events())
    assert "can still be tried" in error.value.hint


def test_without_a_plan_the_load_goes_as_asked(
    starter_model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadPlanner, "prepare", lambda *_: None)
    request = protocol.Load(id="load", path=str(starter_model), n_slots=1)
    worker = _Worker(0)
    assert len(list(CliLoad(worker, request, print).events())) == 1
    assert worker.requests == [request]
    with pytest.raises(NotEnoughMemory) as error:
        list(CliLoad(_Worker(1), request, print).events())
    assert error.value.hint == "no"
