"""What a scripted worker does: its records, and scripts for tests and screenshots.

A script is a JSON object with the fields of `Script`; everything has a default, so `{}` is a well-behaved worker.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from engine.message import ErrorInfo
from engine.worker import protocol

ENV = "INGLENOOK_FAKE_SCRIPT"


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Fault(_Record, frozen=True):
    """Something that goes wrong.

    Attributes:
        kind: "abort", "sigsegv", "sigkill", "sigill", "sigbus": end by that signal, for real. "exit": end with
            `exit_code`. "raise": end by an uncaught Python exception. "hang": the whole process stops reading and
            writing, and stays. "silence": this request alone brings nothing more and does not react to Stop.
            "close": close the output and stay.
        at: fraction of a load, or number of the token before which it happens (0: before the first).
        stderr: lines printed to standard error just before, as native code would.
    """

    kind: str
    at: float = 0.0
    exit_code: int = 3
    stderr: tuple[str, ...] = ()


class LoadPlan(_Record, frozen=True):
    """A load: `seconds` long in `steps` reports of progress; ends in `error` if one is given."""

    seconds: float = 0.0
    steps: int = 10
    error: ErrorInfo | None = None
    fault: Fault | None = None
    n_ctx: int = 8192
    ignore_stop: bool = False


class Answer(_Record, frozen=True):
    """One answer.

    Attributes:
        text: the visible text, cut into word-like tokens; or `tokens`, the exact pieces.
        pieces: exact bytes of tokens (base64 in JSON), for characters that are split over tokens; before `tokens`.
        reasoning: thinking before the text, cut into tokens the same way.
        prefill_s: seconds of reading the prompt, with a report about every 0.1 s.
        n_prompt: prompt tokens; None: estimated from the length of the messages.
        n_cached: prompt tokens that were already in the cache.
        delay_s: seconds from one token to the next; the first comes at the end of the prefill.
        garbage_every: after every n-th token a line that is not of the protocol goes to the output, 0 never.
        ignore_stop: Stop changes nothing.
        repeat: the visible tokens are written this many times.
    """

    text: str = "This is a scripted answer. It says nothing, but it says it in order."
    tokens: tuple[str, ...] = ()
    pieces: tuple[bytes, ...] = ()
    reasoning: str = ""
    prefill_s: float = 0.0
    n_prompt: int | None = None
    n_cached: int = 0
    delay_s: float = 0.005
    garbage_every: int = 0
    garbage: str = "llama_print: native text in the middle"
    ignore_stop: bool = False
    error: ErrorInfo | None = None
    fault: Fault | None = None
    repeat: int = 1


class Script(_Record, frozen=True):
    """The behaviour of one process.

    Attributes:
        protocol: version said in `hello`.
        hello: False: no greeting ever. hello_delay_s: seconds before it. hello_error: an error in place of it.
        start_fault: happens in place of the greeting.
        before_hello: lines written to the output before it. stderr: lines written to standard error at the start.
        answers: taken in turn by `generate` requests, the last one again and again.
        ignore_eof: the end of input does not end the process; ignore_sigterm: nor does SIGTERM.
        pong: False: pings are not answered.
    """

    protocol: int = protocol.PROTOCOL_VERSION
    hello: bool = True
    hello_delay_s: float = 0.0
    hello_error: ErrorInfo | None = None
    start_fault: Fault | None = None
    before_hello: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    load: LoadPlan = LoadPlan()
    answers: tuple[Answer, ...] = (Answer(),)
    ignore_eof: bool = False
    ignore_sigterm: bool = False
    pong: bool = True


def cut(text: str) -> list[str]:
    """Word-like pieces of a text, most of them with their leading space; joined they are the text."""
    return re.findall(r"[ ]?[^\W_]{1,7}|\s+|[^\w\s]{1,3}|.", text, re.DOTALL)


def load_script(source: str) -> Script:
    """A script from a file, from JSON text (beginning with "{"), or one of `NAMED` by its name.

    Raises:
        OSError, msgspec.ValidationError, msgspec.DecodeError
    """
    if source in NAMED:
        return NAMED[source]
    text = source if source.lstrip().startswith("{") else Path(source).read_text(encoding="utf-8")
    script: Script = msgspec.json.decode(text, type=Script)
    return script


def from_env() -> Script:
    """The script named by the environment, or a well-behaved worker."""
    return load_script(os.environ.get(ENV) or "{}")


_SECTIONS = (
    """## Why a container is killed for memory

The kernel keeps a **limit** for each container. When the processes inside need more, the *OOM killer* ends one of them
and the container's last state reads `OOMKilled` with exit code `137`, which is 128 plus the number of SIGKILL.

1. Look at the last state, not at the log: the log ends without a word.
2. Compare the limit with what the program really uses.
3. Raise the limit, or make the program smaller.

""",
    """```bash
kubectl describe pod web-7d4b9 | grep -A 5 "Last State"
kubectl top pod web-7d4b9 --containers
kubectl get events --sort-by=.lastTimestamp | tail -n 20
```

The three commands show the reason, the use now, and what the scheduler did about it.

""",
    """| Field | Meaning | Typical value |
|---|---|---|
| `requests.memory` | what the scheduler sets aside | 256 Mi |
| `limits.memory` | where the kernel draws the line | 512 Mi |
| `restartPolicy` | what happens afterwards | Always |

> A limit that is too low looks like a crash; one that is too high hides a leak.

""",
    """```python
from collections.abc import Iterable


def peak(samples: Iterable[int], limit_bytes: int) -> float:
    \"\"\"Highest use as a share of the limit.\"\"\"
    highest = max(samples, default=0)
    return highest / limit_bytes if limit_bytes else 0.0


print(f"{peak([201_000_000, 489_000_000], 512 * 1024**2):.0%} of the limit")
```

A share above *90 %* for more than a minute is worth a look; see `peak` above, and note that 489 MB of 512 MiB is 91 %.

""",
    """### What to try next

- Set `-Xmx` below the limit for a JVM, `--max-old-space-size` for Node.
- Stream large files in place of reading them whole.
- Keep caches bounded: an **unbounded** cache is a leak with a good excuse.

""",
)


def long_answer(n_tokens: int = 3_000) -> tuple[str, ...]:
    """Exactly `n_tokens` tokens of Markdown with lists, tables and code."""
    tokens: list[str] = []
    number = 0
    while len(tokens) < n_tokens:
        tokens += cut(_SECTIONS[number % len(_SECTIONS)])
        number += 1
    return tuple(tokens[:n_tokens])


_THINKING = """The user asks why a pod restarted. The last termination reason is OOMKilled, so the kernel ended the \
process. I should say what that means, how to confirm it, and what to change. Short is better than complete here."""

NAMED: dict[str, Script] = {
    "plain": Script(answers=(Answer(text=_SECTIONS[0], delay_s=0.02, prefill_s=0.2),)),
    "long": Script(answers=(Answer(tokens=long_answer(), delay_s=0.005, prefill_s=0.1),)),
    "thinking": Script(answers=(Answer(reasoning=_THINKING, text=_SECTIONS[0] + _SECTIONS[1], delay_s=0.03),)),
    "slow_load": Script(load=LoadPlan(seconds=10.0, steps=100)),
    "slow_prefill": Script(answers=(Answer(prefill_s=10.0, n_prompt=6000),)),
    "out_of_memory": Script(
        load=LoadPlan(
            seconds=0.5,
            error=ErrorInfo(
                code="not_enough_memory",
                message="The model needs 5.1 GiB, 3.2 GiB are free",
                hint="Choose a smaller quantization or a smaller context.",
                details={"need_bytes": 5_476_083_302, "free_bytes": 3_435_973_836},
            ),
        )
    ),
    "abort_load": Script(
        load=LoadPlan(seconds=1.0, fault=Fault(kind="abort", at=0.6, stderr=("GGML_ASSERT(n_dims <= 4) failed",)))
    ),
    "abort_answer": Script(
        answers=(Answer(text=_SECTIONS[0], fault=Fault(kind="abort", at=20, stderr=("GGML_ASSERT(n > 0) failed",))),)
    ),
}
