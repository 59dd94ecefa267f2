"""Exit codes in words, in each of the forms they are seen in."""

from __future__ import annotations

import ctypes
import signal

import pytest

from engine.worker import exit_words, windows_job
from engine.worker.exit_words import describe, died, normalize


@pytest.mark.parametrize(
    ("code", "signal_name", "words"),
    [
        (-6, "SIGABRT", "failed check"),
        (134, "SIGABRT", "failed check"),
        (-11, "SIGSEGV", "memory that is not its own"),
        (139, "SIGSEGV", "memory that is not its own"),
        (-4, "SIGILL", "CPU lacks"),
        (132, "SIGILL", "CPU lacks"),
        (-9, "SIGKILL", "most often because memory ran out"),
        (137, "SIGKILL", "most often because memory ran out"),
        (-int(signal.SIGBUS), "SIGBUS", "could not be read"),
        (-8, "SIGFPE", "illegal calculation"),
        (-15, "SIGTERM", "another program"),
        (-63, "signal 63", "by the system"),
        (0xC0000005, "0xC0000005", "memory that is not its own"),
        (-1073741819, "0xC0000005", "memory that is not its own"),
        (2**64 - 1073741819, "0xC0000005", "memory that is not its own"),
        (0xC000001D, "0xC000001D", "CPU lacks"),
        (-1073741795, "0xC000001D", "CPU lacks"),
        (0xC0000409, "0xC0000409", "failed check"),
        (18446744072635812000, "0xC0000409", "failed check"),
        (18446744072635810000, "0xC0000005", "memory that is not its own"),
        (0xC0000142, "0xC0000142", "could not start"),
        (0xC00000FD, "0xC00000FD", "ran out of stack"),
        (0xC0000135, "0xC0000135", "library"),
        (0xC0001234, "0xC0001234", "by the system"),
    ],
)
def test_codes(code: int, signal_name: str, words: str) -> None:
    found = describe(code)
    assert found.signal == signal_name
    assert words in found.what
    assert signal_name in found.what and found.hint


def test_all_known_statuses_are_found_in_every_form() -> None:
    for status in exit_words._STATUS:
        wide = 2**64 - 2**32 + status
        for form in (status, status - 2**32, wide):
            assert normalize(form) == status, hex(status)
        rounded = normalize(int(float(wide)))  # several round to the same number; one of those is named
        assert rounded in exit_words._STATUS and float(2**64 - 2**32 + rounded) == float(wide), hex(status)


def test_plain_exit_code_brings_the_last_log_line() -> None:
    found = describe(3, ["first", "error loading model: unknown type", ""])
    assert found.what == "The worker ended with exit code 3 (error loading model: unknown type)"
    assert found.signal == ""
    assert describe(3).what == "The worker ended with exit code 3"
    assert len(describe(1, ["x" * 10_000]).what) < 300


def test_out_of_memory_is_not_a_generic_abort() -> None:
    logs = [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5000 MiB on device 0: cudaMalloc failed: out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "ggml_vulkan: Device memory allocation of size 1073741824 failed: ErrorOutOfDeviceMemory",
        "alloc_tensor_range: failed to allocate CPU buffer of size 4294967296",
    ]
    for line in logs:
        for code in (-6, 0xC0000409, -11, 1):
            found = describe(code, ["load", line, "Aborted"])
            assert "ran out of memory" in found.what, (line, code)
            assert found.cause == line
            assert "smaller" in found.hint
    assert "memory" not in describe(-6, ["GGML_ASSERT(x) failed"]).what
    assert "ran out of memory" not in describe(0, logs).what
    recovered = ["failed to allocate CUDA0 buffer", *["later line"] * 30, "GGML_ASSERT(x) failed"]
    assert "failed check" in describe(-6, recovered).what


def test_illegal_instruction_is_told_apart() -> None:
    assert describe(-4).illegal_instruction and describe(0xC000001D).illegal_instruction
    assert not describe(-6).illegal_instruction
    assert "AVX" in describe(-4).hint


def test_report() -> None:
    log = [f"line {i}" for i in range(50)] + ["GGML_ASSERT(n_tokens <= n_batch) failed"]
    info = died(-6, doing="writing an answer", log=log)
    assert info.code == "worker_died"
    assert info.message == "llama.cpp stopped on a failed check (SIGABRT) while writing an answer"
    assert info.details["exit_code"] == -6 and info.details["signal"] == "SIGABRT"
    assert info.details["doing"] == "writing an answer"
    assert info.details["log"] == log[-20:]
    assert info.details["cause"] == log[-1]
    assert died(0).message == "The worker ended without being asked to"
    ours = died(-9, doing="reading the prompt", why="did not react to Stop within 5 s")
    assert ours.message == "The worker did not react to Stop within 5 s while reading the prompt and was ended"
    assert "memory" not in ours.message + ours.hint


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="the figure is that of 64-bit Windows")
def test_windows_structure_has_the_size_windows_checks() -> None:
    assert ctypes.sizeof(windows_job.BasicLimits) == 64
    assert ctypes.sizeof(windows_job.ExtendedLimits) == 144
