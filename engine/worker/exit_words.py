"""Why a process ended, in words a user can act on.

Numbers come as POSIX signals (negative return codes, or 128 + n through a shell) and as Windows NTSTATUS values, which
are seen unsigned (3221225477), signed (-1073741819), and widened to 64 bits and rounded by a floating point number on
the way (18446744072635812000). Source of the values: signal(7), winnt.h and ntstatus.h.
"""

from __future__ import annotations

import signal as _signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from engine.message import ErrorInfo
from engine.worker.crumb_record import LastSeen

#: native log lines put into the details of a report
REPORT_LINES = 20

_FEWER = "Try a smaller model, a smaller context or fewer GPU layers, or close other programs."
_RELOAD = "Load the model again. If it happens again, the log lines below say what failed."
_ILLEGAL = (
    "The CPU lacks an instruction that this build of llama.cpp uses (AVX2 or AVX-512 in most cases). "
    "Install a build made for this CPU."
)


@dataclass(frozen=True)
class ExitWords:
    """What an exit code means.

    Attributes:
        what: a clause without a full stop: "llama.cpp stopped on a failed check (SIGABRT)".
        hint: what the user can do.
        signal: name of the signal or Windows status ("SIGABRT", "0xC0000005"), empty for a plain exit code.
        cause: the log line that says most about it, empty if there is none.
    """

    what: str
    hint: str = _RELOAD
    signal: str = ""
    cause: str = ""

    @property
    def illegal_instruction(self) -> bool:
        return self.signal in ("SIGILL", "0xC000001D")


_SIGNALS: dict[str, tuple[str, str]] = {
    "SIGABRT": ("llama.cpp stopped on a failed check", _RELOAD),
    "SIGTRAP": ("llama.cpp stopped on a failed check", _RELOAD),
    "SIGSEGV": ("llama.cpp touched memory that is not its own", _RELOAD),
    "SIGILL": ("The CPU lacks an instruction that llama.cpp used", _ILLEGAL),
    "SIGFPE": ("llama.cpp made an illegal calculation", _RELOAD),
    "SIGBUS": (
        "The model file could not be read while it was in use",
        "The file was changed or cut short, or its disk or network folder went away. Check it, then load again.",
    ),
    "SIGKILL": ("The worker was ended by the system, most often because memory ran out", _FEWER),
    "SIGTERM": ("The worker was ended by another program", "Load the model again."),
    "SIGINT": ("The worker was interrupted", "Load the model again."),
    "SIGHUP": ("The worker was ended because its session closed", "Load the model again."),
    "SIGXCPU": ("The worker used up its allowed CPU time", "Raise the limit (ulimit -t), then load the model again."),
    "SIGXFSZ": ("The worker wrote a file larger than allowed", "Raise the limit (ulimit -f), then load again."),
    "SIGSYS": ("The worker made a system call that this system forbids", "Loosen the sandbox the program runs in."),
}

_STATUS: dict[int, tuple[str, str]] = {
    0xC0000005: _SIGNALS["SIGSEGV"],
    0xC000001D: _SIGNALS["SIGILL"],
    0xC0000409: _SIGNALS["SIGABRT"],
    0x80000003: _SIGNALS["SIGABRT"],
    0xC0000094: _SIGNALS["SIGFPE"],
    0xC0000006: _SIGNALS["SIGBUS"],
    0xC00000FD: ("llama.cpp ran out of stack", _RELOAD),
    0xC0000374: ("llama.cpp damaged its own memory", _RELOAD),
    0xC0000017: ("The worker ran out of memory", _FEWER),
    0xC000012D: ("The system ran out of memory", "Raise the size of the page file, or load a smaller model."),
    0xC0000135: ("A library that llama.cpp needs is missing", "Install the Visual C++ runtime and the GPU driver."),
    0xC0000139: ("A library that llama.cpp needs is of another version", "Update the GPU driver and Inglenook."),
    0xC000007B: ("A library that llama.cpp needs is damaged or for another CPU", "Install Inglenook again."),
    0xC0000142: ("The worker could not start", "The system is short of resources or shutting down. Try again."),
    0xC000013A: _SIGNALS["SIGINT"],
}

#: numbers of signals where this Python has no name for them (Windows reading a report from elsewhere)
_NUMBERS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

_MEMORY_MARKS = (
    "out of memory",
    "outofmemory",
    "outofdevicememory",
    "outofhostmemory",
    "bad_alloc",
    "failed to allocate",
    "unable to allocate",
    "cannot allocate memory",
    "cudamalloc failed",
    "not enough space",
    "insufficient memory",
)
_CAUSE_MARKS = ("ggml_assert", "ggml_abort", "cuda error", "fatal error", "terminate called", "error", "failed")


def normalize(code: int) -> int:
    """A return code as a small number, a negative signal number or an unsigned 32-bit NTSTATUS."""
    if code >= 2**63 and code & 0xFFFFFFFF not in _STATUS:
        # JSON readers that know only doubles round the low bits away; find the status that rounds to the same number
        for status in _STATUS:
            if float(2**64 - 2**32 + status) == float(code):
                return status
    return code & 0xFFFFFFFF if code < -64 or code >= 2**63 else code


def _signal_name(number: int) -> str:
    try:
        return _signal.Signals(number).name
    except ValueError:
        return _NUMBERS.get(number, "")


def _find(log: Sequence[str], marks: Sequence[str]) -> str:
    for mark in marks:
        for line in reversed(log):
            if mark in line.lower():
                return line.strip()
    return ""


def describe(code: int, log: Sequence[str] = (), last: LastSeen | None = None) -> ExitWords:
    """Words for an exit code.

    Args:
        code: as `subprocess.Popen.returncode` gives it, on any system.
        log: last native log lines, oldest first.
        last: what its black box says.
    """
    return _killed(_described(normalize(code), log), last)


def _described(code: int, log: Sequence[str]) -> ExitWords:
    name = ""
    if code < 0:
        name = _signal_name(-code) or f"signal {-code}"
    elif 128 < code < 160:
        name = _signal_name(code - 128)  # a shell or a sandbox stood between us and the worker
    status = code if code >= 0x40000000 else 0
    mark = name or (f"0x{status:08X}" if status else "")

    # only the last lines: an allocation that failed earlier, and was then made elsewhere, did not end the process
    memory = _find(log[-REPORT_LINES:], _MEMORY_MARKS)
    fatal = name in ("SIGABRT", "SIGTRAP", "SIGSEGV") or status in (0xC0000005, 0xC0000409, 0x80000003)
    if memory and (fatal or (code and not mark)):
        return ExitWords(f"llama.cpp ran out of memory ({mark or f'exit code {code}'})", _FEWER, mark, memory)
    cause = _find(log, _CAUSE_MARKS)
    if name:
        what, hint = _SIGNALS.get(name, ("The worker was ended by the system", _RELOAD))
        return ExitWords(f"{what} ({name})", hint, name, cause)
    if status:
        what, hint = _STATUS.get(status, ("The worker was ended by the system", _RELOAD))
        return ExitWords(f"{what} ({mark})", hint, mark, cause)
    if code == 0:
        return ExitWords("The worker ended without being asked to", "Load the model again.", "", cause)
    last = next((line.strip() for line in reversed(log) if line.strip()), "")
    return ExitWords(f"The worker ended with exit code {code}" + (f" ({_short(last)})" if last else ""), cause=last)


def _killed(words: ExitWords, last: LastSeen | None) -> ExitWords:
    """What SIGKILL most likely meant, by what is known of the memory and of what the worker was at."""
    if last is None or words.signal != "SIGKILL":
        return words
    ran_out = last.memory_ran_out
    if ran_out:
        return replace(words, what="The system ended the worker because memory ran out (SIGKILL)")
    if ran_out is None and last.crumb.stage != "idle":
        return words
    what = "The worker was ended from outside (SIGKILL)"
    if ran_out is None:  # it took no memory itself then; others may have
        return replace(words, what=what, hint=f"Another program ended it, or memory ran out. {_FEWER}")
    return replace(words, what=what, hint="Memory had not run out. Load the model again.")


def _short(line: str, limit: int = 160) -> str:
    return line if len(line) <= limit else line[:limit] + "..."


def died(
    code: int, *, doing: str = "", log: Sequence[str] = (), why: str = "", last: LastSeen | None = None
) -> ErrorInfo:
    """The report of a death.

    Args:
        code: return code.
        doing: what the worker was at, in words: "writing an answer"; empty when idle.
        log: last native log lines, oldest first.
        why: filled if we ended it ourselves: "did not react to Stop within 5 s".
        last: what its black box says.
    """
    words = describe(code, log, last)
    during = f" while {doing}" if doing else ""
    if why:
        message, hint = f"The worker {why}{during} and was ended", "Load the model again."
    else:
        message, hint = f"{words.what}{during}", words.hint
    details: dict[str, object] = {
        "exit_code": normalize(code),
        "signal": words.signal,
        "doing": doing,
        "log": [_short(line, 500) for line in log[-REPORT_LINES:]],
    }
    if why:
        details["why"] = why
    if last is not None:
        details["last"] = msgspec.to_builtins(last)
    if words.cause:
        details["cause"] = _short(words.cause, 500)
    return ErrorInfo(code="worker_died", message=message, hint=hint, details=details)
