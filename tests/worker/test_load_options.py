"""Options of a load in a real worker: what was asked for is what llama.cpp does, and what cannot be is said before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_worker import RawWorker

from engine.cores import here
from engine.worker.native_log import not_locked

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"


@pytest.fixture(scope="module")
def model(scripted_model: Make) -> Path:
    return Path(scripted_model(["Hello", " world"], tail=TAIL)["path"])


@pytest.fixture(scope="module")
def worker() -> Iterator[RawWorker]:
    with RawWorker() as one:
        yield one


def refused(worker: RawWorker, path: Path, **options: Any) -> dict[str, Any]:
    event = worker.wait("loaded", "error", id=worker.send("load", path=str(path), **options))
    assert event["type"] == "error", event
    error: dict[str, Any] = event["error"]
    return error


def says(worker: RawWorker) -> str:
    return worker.ask(prompt=f"Go{TAIL}", temperature=0).text


def test_threads(worker: RawWorker, model: Path) -> None:
    info = worker.load(model, n_ctx=256)
    assert info["n_threads"] == info["n_threads_batch"] == here().threads
    info = worker.load(model, n_ctx=256, n_threads=1)
    assert info["n_threads"] == info["n_threads_batch"] == 1, "for prompts as for answers"
    info = worker.load(model, n_ctx=256, n_threads=1, n_threads_batch=2)
    assert (info["n_threads"], info["n_threads_batch"]) == (1, 2)


@pytest.mark.parametrize("flash", ["auto", "on", "off"])
@pytest.mark.parametrize("types", [("f16", "f16"), ("q8_0", "f16"), ("f32", "bf16"), ("q4_0", "q8_0")])
def test_flash_attention_and_types_of_the_cache(
    worker: RawWorker, starter_model: Path, flash: str, types: tuple[str, str]
) -> None:
    options = {"flash_attention": flash, "kv_type_k": types[0], "kv_type_v": types[1], "n_threads": 1}
    if flash == "off" and types[1] == "q8_0":
        error = refused(worker, starter_model, n_ctx=256, **options)
        assert error["code"] == "invalid_request" and error["details"]["field"] == "kv_type_v"
        assert "Q8_0" in error["message"] and "flash attention" in error["message"] and error["hint"]
        assert worker.process.poll() is None
        return
    info = worker.load(starter_model, n_ctx=256, **options)
    assert (info.get("kv_type_k", "f16"), info.get("kv_type_v", "f16")) == types
    assert worker.ask("Hi", max_tokens=3, temperature=0).done


def test_the_file_in_memory(worker: RawWorker, model: Path) -> None:
    mapped = worker.load(model, n_ctx=256)
    assert any("Mapped" in key for key in mapped["buffers"])
    assert says(worker) == "Hello world"
    own = worker.load(model, n_ctx=256, use_mmap=False)
    assert not any("Mapped" in key for key in own["buffers"])
    assert says(worker) == "Hello world"
    worker.load(model, n_ctx=256, use_mmap=True)
    assert says(worker) == "Hello world"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("use_mmap", [None, False])
def test_weights_are_locked_or_it_is_said(worker: RawWorker, starter_model: Path, use_mmap: bool | None) -> None:
    info = worker.load(starter_model, n_ctx=256, use_mlock=True, use_mmap=use_mmap)
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    locked_kib = int(next(line for line in status.splitlines() if line.startswith("VmLck")).split()[1])
    warned = [text for text in info.get("warnings", []) if "could not be locked" in text]
    assert bool(warned) != (locked_kib * 1024 > 0.9 * info["size_bytes"])
    if warned:
        assert "ulimit" in warned[0] or "too little memory" in warned[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("warning: failed to mlock 98304-byte buffer (after previously locking 0 bytes): Cannot allocate memory", True),
        ("warning: failed to VirtualLock 98304-byte buffer (after previously locking 0 bytes): x", True),
        ("warning: mlock not supported on this system", True),
        ("warning: failed to munlock buffer: x", False),
        ("load_tensors: loading model tensors", False),
    ],
)
def test_lines_of_a_lock_that_failed(line: str, found: bool) -> None:
    assert not_locked(["a", line, "b"]) is found


def test_a_batch_smaller_than_the_answers_at_once(worker: RawWorker, model: Path) -> None:
    info = worker.load(model, n_ctx=256, n_batch=1, n_ubatch=1, n_slots=4)
    assert info["n_batch"] == 4
    requests = [worker.generate(prompt=f"Go {i}{TAIL}", sampling={"temperature": 0}) for i in range(6)]
    assert [worker.answer(request).text for request in requests] == ["Hello world"] * 6


def test_a_context_smaller_than_the_answers_at_once(worker: RawWorker, model: Path) -> None:
    info = worker.load(model, n_ctx=1, n_slots=8)
    assert info["n_ctx"] == 256 and info["n_batch"] >= 8
    requests = [worker.generate(prompt=f"Go {i}{TAIL}", sampling={"temperature": 0}) for i in range(8)]
    assert [worker.answer(request).text for request in requests] == ["Hello world"] * 8
