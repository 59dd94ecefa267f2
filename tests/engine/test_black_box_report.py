"""What may stand in a report that is shown to others: llama.cpp's own words, no words of a chat, no path."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import black_box
from engine.black_box_report import Cleaner, Death, text
from engine.message import ErrorInfo
from engine.worker import exit_words, protocol
from engine.worker.crumb_record import Crumb, LastSeen

HOME = "/".join(("", "home", "jane"))  # of somebody else
FOLDER = "/data/Jane Doe's models"
LOAD = protocol.Load(id="1", path=f"{FOLDER}/my private.gguf", n_ctx=4096, chat_template="{# SECRET #}")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("load_tensors:   CPU_Mapped model buffer size =    93.11 MiB", "CPU_Mapped model buffer size"),
        ("llama_kv_cache: size =   45.00 MiB (  2048 cells,  30 layers)", "2048 cells"),
        ("print_info: general.name = SmolLM2 135M", "SmolLM2"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "out of memory"),
        ("GGML_ASSERT(n_tokens <= n_batch) failed", "GGML_ASSERT(n_tokens <= n_batch) failed"),
        (f"{HOME}/build/llama.cpp/ggml/src/ggml.c:1234: GGML_ASSERT(x) failed", "ggml.c:1234: GGML_ASSERT(x)"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "std::bad_alloc"),
        ("CUDA error: an illegal memory access was encountered", "illegal memory access"),
        ("Traceback (most recent call last):", "Traceback"),
        (f'  File "{HOME}/app/engine/worker/owner.py", line 101, in _handle', "File owner.py, line 101, in _handle"),
        ("engine.errors.InvalidRequest: SECRET", ""),
        ("ValueError: the text SECRET is no number", "ValueError"),
    ],
)
def test_known_lines_stay_without_what_is_private(line: str, shown: str) -> None:
    found = Cleaner(LOAD).line(line)
    assert shown in found if shown else not found
    assert "jane" not in found and "SECRET" not in found


@pytest.mark.parametrize(
    "line",
    [
        "SECRET",
        "the user said: SECRET",
        "prompt: SECRET",
        "    raise ValueError('SECRET')",
        "SECRET: /etc/passwd",
        '{"type":"token","text":"SECRET"}',
        "2026-11-30 INFO chat: SECRET",
    ],
)
def test_other_lines_are_counted_only(line: str) -> None:
    assert Cleaner(LOAD).lines([line, "load: done"]) == (["load: done"], 1)


@pytest.mark.parametrize(
    "path",
    [
        LOAD.path,
        f"{FOLDER}/other.gguf",
        f"{HOME}/x.gguf",
        "~/models/x.gguf",
        "C:\\" + r"Users\Jane\models\x.gguf",
        r"\\server\share\Jane\x.gguf",
        str(Path.home() / "models/x.gguf"),
    ],
)
def test_paths_are_taken_out(path: str) -> None:
    found = Cleaner(LOAD).line(f"llama_model_loader: loaded meta data with 33 key-value pairs from {path} (version V3)")
    assert found.endswith("(version V3)") and "<path>" in found
    for word in ("Jane", "jane", "private", "x.gguf", "server", str(Path.home())):
        assert word not in found.replace("<path>/other.gguf", "")


def test_a_report_says_what_is_known() -> None:
    crumb = Crumb("step", ram_free_bytes=90 << 20, ram_total_bytes=16 << 30, n_batch=512)
    last = LastSeen(crumb, 0.2, -1)
    error = exit_words.died(
        -9, doing="reading the prompt", log=["load: done", "SECRET", f"load: {LOAD.path}"], last=last
    )
    found = text(Death(error, 0.0, request=LOAD), ["last stage: computing a step of 512 tokens"])
    for part in (
        "1970-01-01 00:00:00 UTC",
        "because memory ran out (SIGKILL)",
        "exit code: -9",
        "computing a step of 512 tokens",
        "n_ctx: 4096",
        "chat template: the user's own",
        "load: done",
        "1 other lines are left out",
        "it was not loaded yet",
    ):
        assert part in found, part
    for word in ("SECRET", "private", "Jane", FOLDER):
        assert word not in found, word


def test_the_last_line_of_a_plain_exit_is_not_quoted_unseen() -> None:
    error = exit_words.died(3, log=["load: done", "SECRET words of a chat"])
    assert "SECRET" in error.message, "the window may show it; a report may not"
    found = text(Death(error, 0.0), [])
    assert "SECRET" not in found and "exit code 3 (load: done)" in found


def test_a_worker_that_we_ended_is_no_kill_by_the_system() -> None:
    error = exit_words.died(-9, doing="writing an answer", why="did not react to Stop within 5 s")
    assert "cause: the worker did not react to Stop within 5 s and was ended" in text(Death(error, 0.0), [])


def test_an_error_without_details_makes_a_report_too() -> None:
    assert "What happened" in text(Death(ErrorInfo("worker_died", "gone"), 0.0), [])


def test_a_long_stage_is_said_with_its_time() -> None:
    crumb = Crumb("step", n_batch=1, n_answers=1)
    for seen, words in (
        (LastSeen(crumb, 0.1), "At the end it was computing a step of 1 token for 1 answer."),
        (LastSeen(crumb, 12.0), "At the end it was computing a step of 1 token for 1 answer, for 12.00 s."),
        (LastSeen(Crumb("idle"), 7200.0), "At the end it was waiting for work."),
    ):
        assert black_box.sentence(exit_words.died(-9, last=seen)) == words
