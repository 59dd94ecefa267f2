"""Faults on request, for tests only. Without `INGLENOOK_TEST_HOOKS=1` in the environment nothing here does anything.

INGLENOOK_TEST_CRASH=WHERE:HOW[:N]
    Die at a certain point. WHERE: "load" (N: fraction of the weights read, default 0), "prefill" (before the first
    chunk) or "stream" (after the N-th token of an answer, default 1). HOW: "abort", "segv", "kill", "exit" (exit
    code 3), "hang" (the owner thread sleeps for ever).
INGLENOOK_TEST_SLOW_LOAD_S=S
    A load takes S seconds longer, spread over its progress.
INGLENOOK_TEST_SLOW_PREFILL_S=S
    Reading a prompt takes S seconds longer, spread over its tokens. A stop interrupts it as it would llama.cpp.
INGLENOOK_TEST_SLOW_TOKEN_S=S
    Each generated token takes S seconds longer.
INGLENOOK_TEST_KV_IDLE_S=S
    What was not used for S seconds is kept on disk (60 without this).
INGLENOOK_TEST_KV_WORTH_S=S
    A state is kept if reading its tokens again would take longer than S seconds (0.5 without this).
INGLENOOK_TEST_ALWAYS_GUESS=1
    Tokens are guessed ahead whatever that costs.
INGLENOOK_TEST_NATIVE_PRINT=TEXT
    Print TEXT to descriptor 1 with every token, as native code might.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable

_ON = os.environ.get("INGLENOOK_TEST_HOOKS") == "1"
_STEP_S = 0.01


def _value(name: str) -> str:
    return os.environ.get(f"INGLENOOK_TEST_{name}", "") if _ON else ""


_WHERE, _HOW, _WHEN = [*_value("CRASH").split(":"), "", ""][:3]
_SLOW_LOAD_S = float(_value("SLOW_LOAD_S") or 0)
_SLOW_PREFILL_S = float(_value("SLOW_PREFILL_S") or 0)
_SLOW_TOKEN_S = float(_value("SLOW_TOKEN_S") or 0)
_KV_IDLE_S = float(_value("KV_IDLE_S") or 60)
_KV_WORTH_S = float(_value("KV_WORTH_S") or 0.5)
ALWAYS_GUESS = bool(_value("ALWAYS_GUESS"))
_PRINT = _value("NATIVE_PRINT")
_slept_load_s = 0.0


def kv_idle_s() -> float:
    """Seconds after which an unused state is kept on disk."""
    return _KV_IDLE_S


def kv_worth_s() -> float:
    """A state is kept if reading its tokens again would take longer than this."""
    return _KV_WORTH_S


def load_started() -> None:
    global _slept_load_s
    _slept_load_s = 0.0


def loading(fraction: float, interrupted: Callable[[], bool]) -> None:
    """Called from llama.cpp's progress callback."""
    global _slept_load_s
    if _WHERE == "load" and fraction >= float(_WHEN or 0):
        _die()
    rest = min(1.0, max(0.0, fraction)) * _SLOW_LOAD_S - _slept_load_s
    if rest > 0:
        _slept_load_s += rest
        _sleep(rest, interrupted)


def prefilling(share: float, interrupted: Callable[[], bool]) -> bool:
    """Called before a chunk that is `share` of its prompt. True: the wait was interrupted, do not decode."""
    if _WHERE == "prefill":
        _die()
    return bool(_SLOW_PREFILL_S) and _sleep(share * _SLOW_PREFILL_S, interrupted)


def _sleep(seconds: float, interrupted: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0:
        if interrupted():
            return True
        time.sleep(min(_STEP_S, rest))
    return interrupted()


def token_written(count: int) -> None:
    """Called after the `count`-th token of an answer has been sent."""
    if _PRINT:
        os.write(1, _PRINT.encode())
    if _WHERE == "stream" and count >= int(_WHEN or 1):
        _die()
    if _SLOW_TOKEN_S:
        time.sleep(_SLOW_TOKEN_S)


def _die() -> None:
    if _HOW == "segv":
        ctypes.string_at(0)
    elif _HOW == "kill":
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    elif _HOW == "exit":
        os._exit(3)
    elif _HOW == "hang":
        time.sleep(10**6)
    os.abort()
