"""llama.cpp's own answer to what a model takes: a dry run in a child process, from the model's header alone.

Weights and caches are laid out by rule, which the formulas know to the byte, so those come from `engine.fit.needs`. The
compute buffers, which depend on every operation of a model, come from llama.cpp, and so do the totals that the
formulas are checked against. Devices that this computer lacks are stood in for in the child.
"""

from __future__ import annotations

import atexit
import queue
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine import log
from engine.engine_options import GUESSED_TOKENS
from engine.errors import BackendMissing, EngineError, WorkerDied
from engine.fit import stub
from engine.fit.dry_run_records import DryDevice, DryHello, DryRun, Layout
from engine.fit.needs import DEFAULT_CONTEXT, DeviceNeed, DeviceSpec, LoadOptions, Needs, needs_of
from engine.fit.placement import Model, prepare, usable
from engine.models.gguf import check_file, read_header, shard_paths
from engine.models.gguf_header import GgufHeader
from engine.worker import exit_words
from engine.worker.process import Process, default_command, is_frozen, read_lines

__all__ = ["Prober", "close", "probe"]

#: a dry run takes a tenth of a second; starting a child up to a few
START_S, ANSWER_S = 30.0, 20.0
#: an unused child is ended after this time
IDLE_S = 60.0
_MAX_LINE_BYTES = 1 << 20
_REMEMBERED = 512
#: per log line of a total, whose figures have two places
_ROUNDING = 16 * 1024
_NO_LAYOUT = Layout(id=-1)
_log = log.get("fit")


def dry_run_command() -> list[str]:
    """The command of the child: this interpreter, or this program itself where it is frozen."""
    worker = default_command()
    return [worker[0], "--dry-run"] if is_frozen() else [*worker[:-1], "engine.worker.dry_run"]


class _Child:
    """One process and its pipes. Not safe for use by several threads at once."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None) -> None:
        self._process = Process(command, env)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, name="dry run: answers", daemon=True),
            threading.Thread(target=self._read_errors, name="dry run: errors", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        for line in read_lines(self._process.stdout, _MAX_LINE_BYTES):
            if line:
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        for line in read_lines(self._process.stderr, 1 << 16):
            if line:
                self._errors.append(line.decode("utf-8", "replace").rstrip())
                del self._errors[:-200]

    def receive(self, timeout_s: float) -> bytes:
        """Raises: TimeoutError; WorkerDied with what it died of."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            code = self._process.wait()
            self._threads[1].join(1.0)
            words = exit_words.describe(code, self._errors[-40:])
            raise WorkerDied(words.what, hint=words.hint, details={"exit_code": code, "log": self._errors[-15:]})
        return line

    def send(self, line: bytes) -> None:
        self._process.stdin.write(line)

    def end(self) -> None:
        """Kill it and take its pipes down. Idempotent."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(1.0)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                stream.close()
            except OSError:
                pass


class Prober:
    """Asks for dry runs, one after the other, and remembers the answers. All methods may be called from any thread.

    Args:
        folder: where stubs are kept; None: a temporary folder, gone with `close`.
        command, env: the child to run; for tests.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        start_s: float = START_S,
        answer_s: float = ANSWER_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._folder, self._temporary = folder, None if folder else tempfile.TemporaryDirectory(prefix="inglenook-fit-")
        self._command, self._env = list(command or dry_run_command()), env
        self._start_s, self._answer_s, self._idle_s = start_s, answer_s, idle_s
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._timer: threading.Timer | None = None
        self._number = 0
        self._known: OrderedDict[Any, Layout] = OrderedDict()
        self.llama_cpp = ""

    def probe(
        self,
        model: GgufHeader | Sequence[GgufHeader] | str | Path,
        options: LoadOptions,
        devices: Sequence[DeviceSpec],
    ) -> Needs:
        """What llama.cpp says the model takes; where it cannot be asked, the formulas' answer with the reason in
        `unknown`.

        Args:
            model: a file (of a split model its first), or the header, or the headers of all parts.

        Raises:
            the errors of `read_header` for a file; InvalidRequest for impossible options.
        """
        headers = _headers(model)
        prepared = prepare(headers[0], headers[1:])
        formula = needs_of(prepared, options, devices)
        try:
            layout = self.layout(headers, prepared, options, devices)
        except EngineError as error:
            return _not_asked(formula, error.message)
        if layout.error:
            said = next((line for line in reversed(layout.log) if "error" in line.lower()), "")
            return _not_asked(formula, f"{layout.error}{': ' + said if said else ''}")
        return combine(prepared, options, devices, formula, layout)

    def layout(
        self, headers: Sequence[GgufHeader], model: Model, options: LoadOptions, devices: Sequence[DeviceSpec]
    ) -> Layout:
        """llama.cpp's plain answer, from memory if it was asked before.

        Raises:
            BackendMissing, WorkerDied: there is no answer, with the reason.
            StorageFailed, UnsupportedModel: no stub can be written.
        """
        with self._lock:
            path = stub.write_stub(headers, self._stubs())
            question = _question(path, model, options, devices)
            key = msgspec.structs.replace(question, id=0)
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._ask(question)
                while len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return known

    def _stubs(self) -> Path:
        if self._folder is not None:
            return self._folder
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="inglenook-fit-")
        return Path(self._temporary.name)

    def _ask(self, question: DryRun) -> Layout:
        if self._timer is not None:
            self._timer.cancel()
        self._number += 1
        question = msgspec.structs.replace(question, id=self._number)
        try:
            child = self._running()
            child.send(msgspec.json.encode(question) + b"\n")
            until = time.monotonic() + self._answer_s
            layout = _NO_LAYOUT
            while layout.id != question.id:
                layout = msgspec.json.decode(child.receive(max(0.0, until - time.monotonic())), type=Layout)
        except TimeoutError as error:  # before OSError, of which it is one
            self._end_child()
            raise WorkerDied(f"The dry run did not answer within {self._answer_s:g} s") from error
        except (OSError, msgspec.DecodeError, WorkerDied) as error:
            raise self._death(error) from error
        self._timer = threading.Timer(self._idle_s, self._rest)
        self._timer.daemon = True
        self._timer.start()
        return layout

    def _death(self, error: Exception) -> EngineError:
        if isinstance(error, OSError) and self._child is not None:
            try:  # it is gone; why, its exit code says
                self._child.receive(1.0)
            except (WorkerDied, TimeoutError) as death:
                error = death
        self._end_child()
        if isinstance(error, WorkerDied):
            _log.warning("a dry run died: %s", error.message)
            return WorkerDied(f"The dry run died: {error.message}", details=error.details)
        return WorkerDied(f"The dry run failed: {error}")

    def _running(self) -> _Child:
        if self._child is None:
            self._child = _Child(self._command, self._env)
            try:
                hello = msgspec.json.decode(self._child.receive(self._start_s), type=DryHello)
            except WorkerDied as error:
                self._end_child()
                raise BackendMissing(f"llama.cpp cannot be asked: {error.message}", details=error.details) from error
            self.llama_cpp = hello.llama_cpp
        return self._child

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _rest(self) -> None:
        with self._lock:
            self._end_child()

    def close(self) -> None:
        """End the child. A later probe starts another. Idempotent."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._end_child()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = None


def _headers(model: GgufHeader | Sequence[GgufHeader] | str | Path) -> list[GgufHeader]:
    if isinstance(model, GgufHeader):
        return [model]
    if isinstance(model, str | Path):
        first = check_file(model)
        return [first, *(read_header(path, max_array=0) for path in shard_paths(model)[1 : first.split_count])]
    return list(model)


def _question(path: Path, model: Model, options: LoadOptions, devices: Sequence[DeviceSpec]) -> DryRun:
    shape = model.shape
    chosen = [device for device, use in zip(devices, usable(devices), strict=True) if use]
    n_outputs = options.n_slots + GUESSED_TOKENS if options.n_outputs is None else options.n_outputs
    return DryRun(
        id=0,
        path=str(path),
        n_ctx=options.n_ctx or min(shape.n_ctx_train or DEFAULT_CONTEXT, DEFAULT_CONTEXT),
        n_gpu_layers=len(shape.layers) + 1 if options.n_gpu_layers < 0 else options.n_gpu_layers,
        kv_type_k=options.kv_type_k,
        kv_type_v=options.kv_type_v,
        flash_attention=options.flash_attention,
        n_ubatch=options.n_ubatch,
        n_batch=options.n_batch,
        n_slots=options.n_slots,
        kv_unified=options.kv_unified,
        swa_full=options.swa_full,
        n_cpu_moe=min(options.n_cpu_moe, len(shape.layers)),
        tensor_split=tuple(float(share) for share in options.tensor_split[: len(chosen)]),
        offload_kqv=options.offload_kqv,
        op_offload=options.op_offload,
        n_outputs=n_outputs,
        devices=tuple(DryDevice(d.name, d.kind, d.backend, d.free_bytes, d.total_bytes) for d in chosen),
    )


def _not_asked(formula: Needs, why: str) -> Needs:
    return replace(formula, unknown=(*formula.unknown, why))


def combine(model: Model, options: LoadOptions, devices: Sequence[DeviceSpec], formula: Needs, layout: Layout) -> Needs:
    """Formula and dry run together: weights and caches by device from the one, compute and totals from the other."""
    unknown: list[str] = []
    if layout.flash != formula.flash_attention:  # the caches depend on it
        chosen = replace(options, flash_attention="on" if layout.flash else "off")
        formula = needs_of(model, chosen, devices)
    on_gpu = sum(1 for name in layout.layers if name != "CPU")
    if layout.layers and on_gpu != formula.n_gpu_layers:
        unknown.append(f"llama.cpp puts {on_gpu} layers on devices, not {formula.n_gpu_layers}")
    said = layout.kv_bytes + layout.state_bytes
    needs = [*formula.devices, formula.host]
    reckoned = sum(need.kv_bytes for need in needs)
    if abs(said - reckoned) > max(_ROUNDING, said // 1000):
        needs = [replace(need, kv_bytes=_share(said, need, needs)) for need in needs]
        if len([need for need in needs if need.kv_bytes]) > 1:
            unknown.append("how the cache is spread over the devices is estimated")
    needs = [replace(need, compute_bytes=layout.compute.get(need.name, 0)) for need in needs]
    host = replace(needs[-1], compute_bytes=layout.compute.get("Host", 0), overhead_bytes=layout.output_bytes)
    return Needs(
        devices=tuple(needs[:-1]),
        host=host,
        n_ctx=layout.n_ctx,
        source="probe",
        unknown=tuple(unknown),
        flash_attention=layout.flash,
        n_gpu_layers=on_gpu if layout.layers else formula.n_gpu_layers,
    )


def _share(said: int, need: DeviceNeed, all_needs: Sequence[DeviceNeed]) -> int:
    """A part of the cache as large as the formulas' part of theirs, or as the part of the weights."""
    caches = sum(other.kv_bytes for other in all_needs)
    if caches:
        return said * need.kv_bytes // caches
    weights = sum(other.weights_bytes for other in all_needs)
    return said * need.weights_bytes // weights if weights else 0


_shared: Prober | None = None
_shared_lock = threading.Lock()


def probe(
    model: GgufHeader | Sequence[GgufHeader] | str | Path, options: LoadOptions, devices: Sequence[DeviceSpec]
) -> Needs:
    """`Prober.probe` with a child that all callers share."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Prober()
            atexit.register(close)
    return _shared.probe(model, options, devices)


def close() -> None:
    """End the shared child. Idempotent."""
    if _shared is not None:
        _shared.close()
