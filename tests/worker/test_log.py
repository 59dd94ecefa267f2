"""The log: a ring, a file that may fail, and no word of any message in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_fakes import TIMEOUT_S, generate, load_request, running

from engine import events, log
from engine.worker import protocol


@pytest.fixture(autouse=True)
def fresh_log() -> Iterator[None]:
    level = logging.getLogger(log.ROOT).level
    log.ring.clear()
    yield
    log.setup(None, level)
    log.ring.clear()


def test_ring_and_file(tmp_path: Path) -> None:
    path = log.setup(tmp_path / "logs", "debug")
    assert path == tmp_path / "logs" / log.FILE_NAME
    log.get("model").debug("loaded %d layers", 30)
    assert log.ring.lines()[-1].endswith("DEBUG   inglenook.model: loaded 30 layers")
    assert path.read_text(encoding="utf-8") == log.ring.lines()[-1] + "\n"
    log.setup(None, "WARNING")
    log.get("model").info("not kept")
    assert "not kept" not in log.ring.lines()[-1] and "not kept" not in path.read_text(encoding="utf-8")


def test_setup_twice_writes_once(tmp_path: Path) -> None:
    log.setup(tmp_path)
    path = log.setup(tmp_path)
    assert path is not None
    log.get("app").info("once")
    assert path.read_text(encoding="utf-8").count("once") == 1


def test_the_ring_is_bounded_and_safe_between_threads() -> None:
    def write() -> None:
        for i in range(1_000):
            log.get("app").warning("line %d", i)
            log.ring.lines() if i % 100 == 0 else None

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.ring.lines()) == log.RING_LINES


def test_the_file_rotates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FILE_MAX_BYTES", 10_000)
    folder = tmp_path / "logs"
    log.setup(folder)
    for _ in range(600):
        log.get("app").info("x" * 80)
    files = sorted(p.name for p in folder.iterdir())
    assert files == ["inglenook.log", "inglenook.log.1", "inglenook.log.2", "inglenook.log.3"]
    assert all(p.stat().st_size <= 10_000 for p in folder.iterdir())


def test_a_folder_that_cannot_be_made_costs_only_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")
    assert log.setup(tmp_path / "logs") is None
    log.get("app").warning("still here")
    assert log.ring.lines()[-1].endswith("still here")
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_costs_only_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / log.FILE_NAME).symlink_to("/dev/full")
    log.setup(tmp_path)
    log.get("app").warning("first")
    log.get("app").warning("second")
    lines = log.ring.lines()
    assert lines[-1].endswith("second") and sum("kept in memory only" in line for line in lines) == 1
    assert capfd.readouterr().err == ""


def test_hard_lines() -> None:
    log.get("app").info("red \x1b[31m bell \x07 nul \x00 end")
    assert "\x1b" not in log.ring.lines()[-1] and "\x00" not in log.ring.lines()[-1]
    log.get("app").info("y" * 50_000)
    assert len(log.ring.lines()[-1]) < 5_000
    log.ring.handle(logging.LogRecord("x", logging.INFO, "x.py", 1, "wrong %d format", ("x",), None))
    assert "could not be formatted" in log.ring.lines()[-1]


def test_a_listener_that_raises_is_dropped() -> None:
    heard: list[str] = []

    def bad(line: str) -> None:
        raise RuntimeError

    log.ring.subscribe(bad)
    log.ring.subscribe(heard.append)
    log.get("app").info("one")
    log.get("app").info("two")
    log.ring.unsubscribe(heard.append)
    log.get("app").info("three")
    assert [line[-3:] for line in heard] == ["one", "two"]


def test_no_word_of_a_message_is_logged(tmp_path: Path) -> None:
    path = log.setup(tmp_path, "debug")
    secret, answer = "hunter2secret", "answerword"
    script = {
        "answers": [
            {
                "tokens": [answer] * 5,
                "reasoning": "thoughtword",
                "delay_s": 0,
                "garbage_every": 1,
                "garbage": f'{{"type":"token","text":"{answer}',
            }
        ]
    }
    with running(script, load=True) as (client, seen):
        client.request(generate(client, secret), TIMEOUT_S)
        client.request(protocol.Tokenize(id="t", text=secret), TIMEOUT_S)
        client.request(protocol.Generate(id="p", prompt=secret), TIMEOUT_S)
        client.send(load_request(client))
        seen.wait(events.Loaded, n=2)
    assert path is not None
    text = path.read_text(encoding="utf-8") + "".join(log.ring.lines())
    assert "generate" in text and "characters" in text and "unreadable record" in text
    for word in (secret, answer, "thoughtword"):
        assert word not in text
    assert log.sized(secret) == "13 characters" and log.sized(b"12") == "2 bytes" and log.sized(None) == "nothing"
