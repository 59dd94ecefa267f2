"""The report of a death that can be shown to others: nothing that was written in a chat, and no path.

Native lines are kept only where they have the shape of llama.cpp's own messages: what else stands in a log (an
exception of ours with a piece of a text in it, a print of some driver) is counted, not shown.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import engine
from engine import cores, events, hardware
from engine.figures import FitSummary
from engine.fit.words import size_text
from engine.message import ErrorInfo
from engine.worker import exit_words, protocol
from engine.worker.crumb_record import last_seen_of

#: fields of a load that name files or hold a text of the user
_PRIVATE = frozenset(("id", "path", "chat_template", "kv_folder", "draft_path", "adapters"))
_NATIVE = re.compile(
    r"""^\s*(?:
        ~?(?:llama|ggml|gguf|load|print_info|create_tensor|sched|graph|set_|get_|alloc|register_|system_info|kv_cache|
           state_|decode|encode|build_|cuda|metal|vulkan|hip|sycl|rpc|done_getting_tensors|common_)[\w:]*\s*(?:\[|:\s)
        |(?:GGML_ASSERT|GGML_ABORT|CUDA\ error|HIP\ error|SYCL\ error|ggml_\w+\ error)\b
        |[\w./\\ :-]+\.(?:c|cc|cpp|cu|cuh|h|hpp|m|metal|comp):\d+:\s
        |terminate\ called|what\(\):\s|current\ device:
    )""",
    re.VERBOSE,
)
_EXCEPTION = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Warning|Exit))\b")
_FRAME = re.compile(r'^\s*File "([^"]*)", line (\d+)(?:, in (\w+))?')
_PATH = re.compile(r"""(?<![\w.])(?:~|[A-Za-z]:)?[/\\]{1,2}(?:[^\s/\\:'",;()<>|*?]+[/\\])+[^\s/\\:'",;()<>|*?]*""")
_SOURCE = re.compile(r"[\w.-]+\.(?:c|cc|cpp|cu|cuh|h|hpp|m|metal|comp|py|so|dll|dylib)(?:\.\d+)*$")


class Death(msgspec.Struct, frozen=True):
    """A model's process that ended by itself.

    Attributes:
        error: as front ends got it. at_s: seconds since 1970.
        model: what was loaded, None if it died in the load. fit: its plan, with what it took.
        request: what the worker was asked to load, the planner's choices in it.
        ran_s: seconds from the end of the load, None as for `model`. n_answers: that were completed in that time.
        hello: what the process said of itself.
    """

    error: ErrorInfo
    at_s: float
    model: events.ModelInfo | None = None
    request: protocol.Load | None = None
    fit: FitSummary | None = None
    ran_s: float | None = None
    n_answers: int = 0
    hello: events.Hello | None = None


def text(death: Death, at_the_end: Sequence[str]) -> str:
    """The report. `at_the_end`: what the black box says, in words."""
    clean = Cleaner(death.request)
    log = [str(line) for line in death.error.details.get("log") or ()]
    kept, n_left_out = clean.lines(log)
    parts = [
        "Inglenook: report of a model process that ended by itself",
        "It holds no text of a chat and no path of a file.",
        "",
        *_section("What happened", _what(death, kept)),
        *_section("At the end", at_the_end or ["nothing is known"]),
        *_section("Model", _model(death)),
        *_section("Load", _load(death)),
        *_section("Memory, planned and measured", _memory(death.fit)),
        *_section("Computer", _computer(death.hello)),
        *_section("Last lines of llama.cpp", kept or ["none"]),
    ]
    if n_left_out:
        parts.append(f"  ({n_left_out} other lines are left out: they might hold words of a chat)")
    return "\n".join(parts) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = [f"  {line}" for line in lines]
    return [title, *found, ""] if found else []


def _what(death: Death, log: Sequence[str]) -> list[str]:
    details = death.error.details
    code = details.get("exit_code")
    # the sentence of the error may quote a line of the log
    words = exit_words.describe(code, log, last_seen_of(details)) if isinstance(code, int) else None
    ended_by_us = details.get("why")
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(death.at_s))
    found = [f"when: {when}"]
    if words is not None:
        found.append(f"cause: the worker {ended_by_us} and was ended" if ended_by_us else f"cause: {words.what}")
        found.append(f"exit code: {code}" + (f" ({words.signal})" if words.signal else ""))
    if death.ran_s is not None:
        found.append(f"the model had been loaded for {death.ran_s:,.0f} s, {death.n_answers} answers were complete")
    return found


def _model(death: Death) -> list[str]:
    model = death.model
    if model is None:
        return ["it was not loaded yet"]
    named_by_file = model.name == Path(model.path).stem  # then its name is the user's
    return [
        f"name: {'that of its file' if named_by_file else model.name}",
        f"architecture: {model.architecture}, {model.quantization}, {model.n_params:,} parameters",
        f"size: {size_text(model.size_bytes)}, {model.n_layer} layers, {model.n_gpu_layers} on GPUs",
        f"vocabulary: {model.n_vocab:,} tokens, trained for a context of {model.n_ctx_train:,}",
        f"context: {model.n_ctx:,} tokens in {model.n_slots} slots, KV cache {size_text(model.kv_bytes)}",
        f"chat template: {model.template.source}",
    ]


def _load(death: Death) -> list[str]:
    request = death.request
    if request is None:
        return []
    found = [
        f"{name}: {value}"
        for name, value in msgspec.to_builtins(request).items()
        if name not in _PRIVATE and name != "type" and isinstance(value, int | float | str | list | tuple)
    ]
    if request.adapters:
        found.append(f"adapters: {', '.join(f'{adapter.scale:g}' for adapter in request.adapters)} (scales)")
    if request.chat_template is not None:
        found.append("chat template: the user's own")
    if request.draft_path:
        found.append("a draft model was asked for")
    return found or ["all by default"]


def _memory(fit: FitSummary | None) -> list[str]:
    if fit is None:
        return []
    found = [f"verdict: {fit.verdict}, by {fit.source}"]
    for one in fit.devices:
        planned = f"weights {size_text(one.weights_bytes)}, KV {size_text(one.kv_bytes)}"
        planned += f", compute {size_text(one.compute_bytes)}"
        found.append(f"{one.name}: {planned}; {size_text(one.free_bytes)} were free")
        taken = (one.measured_weights_bytes, one.measured_kv_bytes, one.measured_compute_bytes)
        if None not in taken:
            weights, kv, compute = (size_text(size or 0) for size in taken)
            found.append(f"  measured: weights {weights}, KV {kv}, compute {compute}")
    return found


def _computer(hello: events.Hello | None) -> list[str]:
    cpu, ram = hardware.cpu(), hardware.ram()
    found = [
        f"Inglenook {engine.__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}",
        f"processor: {cpu.name or platform.machine()}, {cpu.logical_cores} logical cores, {cores.here().threads} used",
        f"memory: {size_text(ram.total_bytes)}, {size_text(ram.available_bytes)} free when this report was made",
    ]
    if hello is not None:
        found.append(f"llama.cpp: {hello.llama_cpp}; backends: {', '.join(hello.backends) or 'none'}")
        if hello.cpu_module:
            found.append(f"module for this processor: {hello.cpu_module}")
        found += [f"{add_on.name} add-on: {add_on.state.replace('_', ' ')}" for add_on in hello.add_ons]
        for device in hello.devices:
            if device.kind != "cpu" and not device.backend.startswith("RPC"):
                size = size_text(device.memory_total_bytes)
                found.append(f"device {device.name}: {device.description}, {size}")
            elif device.backend.startswith("RPC"):
                found.append(f"device {device.name}: on another computer")
    return found


class Cleaner:
    """Takes out of native lines what is nobody else's business.

    Args:
        request: the load, whose paths are known.
    """

    def __init__(self, request: protocol.Load | None = None) -> None:
        known: list[str] = []
        if request is not None:
            known += [request.path, request.kv_folder, request.draft_path, *(a.path for a in request.adapters)]
            known += [str(Path(path).parent) for path in known if path]
        known.append(os.path.expanduser("~"))  # noqa: PTH111 (never raises: "~" where there is no home)
        self._known = sorted({path for path in known if len(path) > 2}, key=len, reverse=True)
        self._user = _user()

    def lines(self, log: Iterable[str]) -> tuple[list[str], int]:
        """(the lines that may be shown, how many may not)"""
        found = [self.line(line) for line in log]
        kept = [line for line in found if line]
        return kept, len(found) - len(kept)

    def line(self, line: str) -> str:
        """A line without paths; empty if it may not be shown at all."""
        if frame := _FRAME.match(line):
            name = re.split(r"[/\\]", frame[1])[-1]
            return f"File {name}, line {frame[2]}" + (f", in {frame[3]}" if frame[3] else "")
        if line.startswith("Traceback (most recent call last)"):
            return line.strip()
        if caught := _EXCEPTION.match(line):
            return f"{caught[1]} (its words are left out)"
        if not _NATIVE.match(line):
            return ""
        return self._without_paths(line)

    def _without_paths(self, line: str) -> str:
        for path in self._known:
            line = line.replace(path, "<path>")
        line = _PATH.sub(_shortened, line)
        return re.sub(rf"\b{re.escape(self._user)}\b", "<user>", line) if self._user else line


def _shortened(found: re.Match[str]) -> str:
    """A path of a source file or a library by its name alone, any other not at all."""
    name = re.split(r"[/\\]", found[0])[-1]
    return name if _SOURCE.fullmatch(name) else "<path>"


def _user() -> str:
    try:
        name = getpass.getuser()
    except Exception:  # no entry for this user: KeyError, OSError, ImportError
        return ""
    return name if len(name) > 2 else ""
