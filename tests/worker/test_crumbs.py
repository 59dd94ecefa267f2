"""The black box of a worker: what was written last is read whole, whatever the worker died of, and nothing is left."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from worker_fakes import TIMEOUT_S, Recorder, generate, make

from engine import events
from engine.worker import crumb_record, exit_words, protocol
from engine.worker.client import WorkerClient
from engine.worker.crumb_record import STAGES, BlackBoxFile, Crumb, LastSeen, last_seen_of

VALUES = (512, 500, 2, 1_000, 3_000, 64, 1_064, 8_192, 5 << 30, 400 << 20, 16 << 30, 7, 1 << 30, -1, -1, -1)
CRUMB = Crumb("step", 12.5, 0.0, *VALUES[:12], (1 << 30,))

posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


@pytest.fixture(autouse=True)
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _written(*numbers: int) -> bytearray:
    data = bytearray(crumb_record.SIZE)
    for number in numbers:
        crumb_record.write(memoryview(data), number, STAGES.index("step"), float(number), 0.0, *VALUES)
    return data


def test_the_last_record_is_read() -> None:
    assert crumb_record.read(bytes(crumb_record.SIZE)) is None
    assert crumb_record.read(b"") is None
    data = bytearray(crumb_record.SIZE)
    crumb_record.write(memoryview(data), 1, STAGES.index("step"), 12.5, 0.0, *VALUES)
    assert crumb_record.read(data) == CRUMB
    for last in range(1, 6):
        found = crumb_record.read(_written(*range(1, last + 1)))
        assert found is not None and found.at_s == last


def test_a_record_cut_off_anywhere_leaves_the_one_before() -> None:
    """A process can be ended in the middle of a copy; each length of it is tried."""
    before, after = _written(4, 5), _written(4, 5, 6)
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    for end in range(changed[0], changed[-1] + 1):
        found = crumb_record.read(after[:end] + before[end:])
        assert found is not None and found.at_s in (4.0, 5.0, 6.0)
        assert found.at_s == 5.0 or end > changed[-1], "a record that was not finished was taken for whole"


def test_a_stage_that_nobody_knows_is_no_record() -> None:
    data = bytearray(crumb_record.SIZE)
    crumb_record.write(memoryview(data), 1, 200, 0.0, 0.0, *VALUES)
    assert crumb_record.read(data) is None


def test_no_file_is_no_black_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no such folder")
    box = BlackBoxFile()
    assert box.env == {} and box.last_seen() is None
    box.close()


# ------------------------------------------------------------------ what it says about memory


def _seen(
    free: int,
    *,
    ago_s: float = 0.1,
    before: int = 3,
    after: int = 3,
    stage: str = "step",
    rss: int = -1,
    after_end: int = -1,
) -> LastSeen:
    crumb = Crumb(stage, ram_free_bytes=free, ram_total_bytes=16 << 30, n_oom_kills=before, rss_bytes=rss)
    return LastSeen(crumb, ago_s, after, after_end)


@pytest.mark.parametrize(
    ("seen", "ran_out"),
    [
        (_seen(8 << 30), False),
        (_seen(100 << 20), True),
        (_seen(400 << 20), True),  # less than a thirty-second of the memory
        (_seen(1 << 30), None),
        (_seen(-1), None),
        (_seen(8 << 30, ago_s=100.0), None),  # much can have happened since
        (_seen(100 << 20, ago_s=100.0), None),
        # then what is free right after the end counts, less what the worker itself had
        (_seen(8 << 30, ago_s=100.0, after_end=8 << 30, rss=1 << 30), False),
        (
            _seen(100 << 20, ago_s=100.0, after_end=8 << 30, rss=1 << 30),
            False,
        ),  # short at the last look, not at the end
        (_seen(8 << 30, ago_s=100.0, after_end=8 << 30, rss=7 << 30), None),  # all of that may have been its own
        (_seen(8 << 30, ago_s=100.0, after_end=1 << 30, rss=7 << 30), None),
        (_seen(-1, after_end=8 << 30), False),
        (_seen(100 << 20, after_end=8 << 30), True),  # what was noted a moment before counts more
        (_seen(8 << 30, after=4), True),
        (_seen(8 << 30, ago_s=100.0, after=4), True),
        (_seen(8 << 30, before=-1, after=-1), False),
    ],
)
def test_whether_memory_ran_out(seen: LastSeen, ran_out: bool | None) -> None:
    assert seen.memory_ran_out is ran_out
    words = exit_words.describe(-9, last=seen).what
    expected = {True: "because memory ran out", False: "from outside", None: "most often because memory ran out"}
    assert expected[ran_out] in words and "SIGKILL" in words
    assert "failed check" in exit_words.describe(-6, last=seen).what, "it says nothing about other ends"


def test_an_idle_worker_did_not_take_the_memory() -> None:
    """Ended after a long wait: memory is named as the cause only where it can have been."""
    unknown = exit_words.describe(-9, last=_seen(8 << 30, stage="idle", ago_s=3600.0))
    assert "from outside" in unknown.what and "or memory ran out" in unknown.hint
    plenty = exit_words.describe(-9, last=_seen(8 << 30, stage="idle", ago_s=3600.0, after_end=8 << 30))
    assert "from outside" in plenty.what and "Memory had not run out" in plenty.hint
    counted = exit_words.describe(-9, last=_seen(8 << 30, stage="idle", ago_s=3600.0, after=4, after_end=8 << 30))
    assert "because memory ran out" in counted.what
    computing = exit_words.describe(-9, last=_seen(8 << 30, stage="step", ago_s=3600.0))
    assert "most often because memory ran out" in computing.what


@posix
def test_killed_after_a_long_wait_it_is_not_called_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crumb_record, "_FRESH_S", 0.2)  # ten seconds in real life
    client, seen = make()
    client.start(TIMEOUT_S)
    client.request(protocol.Load(id=client.new_id(), path="any.gguf"), 10)
    time.sleep(0.5)
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    found = _dead(client, seen)
    assert not found.is_fresh and found.ram_free_bytes > 0
    assert found.memory_ran_out is False, "there is memory enough here"
    error = seen.wait(events.WorkerExited).error
    assert error is not None and "memory" not in error.message and "Memory had not run out" in error.hint


def test_details_hold_what_was_seen() -> None:
    seen = LastSeen(CRUMB, 0.25, 7)
    info = exit_words.died(-6, doing="writing an answer", last=seen)
    assert last_seen_of(msgspec.json.decode(msgspec.json.encode(info.details))) == seen
    assert last_seen_of({"last": {"crumb": 3}}) is None and last_seen_of({}) is None


def test_the_systems_count_can_be_read_where_it_has_one() -> None:
    count = crumb_record.oom_kills()
    vmstat = Path("/proc/vmstat")
    if vmstat.exists() and "\noom_kill " in vmstat.read_text(encoding="ascii"):
        assert count >= 0


# ------------------------------------------------------------------ a process that dies


def _dead(client: WorkerClient, seen: Recorder) -> LastSeen:
    exited = seen.wait(events.WorkerExited)
    assert exited.error is not None
    found = last_seen_of(exited.error.details)
    assert found is not None, "the black box is empty"
    client.stop()
    return found


@posix
@pytest.mark.parametrize("kind", ["abort", "sigsegv", "sigkill"])
def test_the_scripted_worker_leaves_crumbs(kind: str, own_temp: Path) -> None:
    client, seen = make({"answers": [{"tokens": [" w"] * 40, "delay_s": 0.001, "fault": {"kind": kind, "at": 25}}]})
    client.start(TIMEOUT_S)
    client.request(protocol.Load(id=client.new_id(), path="/models/a.gguf", n_ctx=2048), TIMEOUT_S)
    request = generate(client)
    client.send(request)
    found = _dead(client, seen)
    assert (found.crumb.stage, found.crumb.n_batch, found.crumb.n_written, found.crumb.n_ctx) == ("step", 1, 25, 2048)
    assert found.ago_s < 5.0 and found.crumb.rss_bytes > 1 << 20
    assert not [*own_temp.iterdir()], "nothing is left behind"


def _real(hooks: dict[str, str]) -> tuple[WorkerClient, Recorder]:
    seen = Recorder()
    env = {"INGLENOOK_TEST_HOOKS": "1", **{f"INGLENOOK_TEST_{name}": value for name, value in hooks.items()}}
    return WorkerClient(seen, env=env), seen


@posix
@pytest.mark.parametrize(
    ("crash", "stage"),
    [("load:kill:0.5", "weights"), ("prefill:segv", "step"), ("stream:kill:5", "sample")],
)
def test_the_real_worker_leaves_crumbs(starter_model: Path, own_temp: Path, crash: str, stage: str) -> None:
    client, seen = _real({"CRASH": crash})
    client.start(60)
    client.send(protocol.Load(id=client.new_id(), path=str(starter_model), n_ctx=2048))
    if stage != "weights":
        seen.wait(events.Loaded, timeout_s=60)
        client.send(generate(client, "Say something long about lanterns, please."))
    found = _dead(client, seen)
    crumb = found.crumb
    assert crumb.stage == stage and found.ago_s < 5.0
    assert crumb.ram_free_bytes > 0 and crumb.ram_total_bytes >= crumb.ram_free_bytes
    if stage == "weights":
        assert 0.4 < crumb.fraction < 1.0 and crumb.n_ctx == 0
    elif stage == "step":
        assert crumb.n_reading == crumb.n_batch > 10 and crumb.n_prompt >= crumb.n_reading and crumb.n_written == 0
        assert (crumb.n_answers, crumb.used_cells, crumb.n_ctx) == (1, 0, 2048)
    else:
        # the counts are those of the step whose token was being chosen
        assert (crumb.n_batch, crumb.n_answers, crumb.n_written) == (1, 1, 4)
        assert crumb.used_cells > 14
    assert not [*own_temp.iterdir()]


@posix
def test_killed_while_idle(starter_model: Path) -> None:
    client, seen = _real({})
    client.start(60)
    client.request(protocol.Load(id=client.new_id(), path=str(starter_model), n_ctx=512), 60)
    client.request(protocol.Ping(id=client.new_id()), 10)
    assert client.pid is not None
    done: Any = client.request(generate(client, "Hi", max_tokens=3), 60)
    assert isinstance(done, events.Done)
    client.request(protocol.Tokenize(id=client.new_id(), text="x"), 60)  # then it is idle, or about to be
    os.kill(client.pid, signal.SIGKILL)
    found = _dead(client, seen)
    assert found.crumb.stage in ("idle", "count") and found.crumb.n_ctx == 512


def test_an_expected_end_leaves_nothing(own_temp: Path) -> None:
    client, seen = make()
    client.start(TIMEOUT_S)
    client.stop()
    assert seen.of(events.WorkerExited) == [events.WorkerExited(expected=True)]
    assert not [*own_temp.iterdir()]
