"""`inglenook fit`: will a model fit on this computer, and how."""

from __future__ import annotations

import argparse
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from engine import hardware
from engine import paths as places
from engine.cli_look import EarlyLook
from engine.cli_output import for_terminal, json_line
from engine.errors import InvalidRequest, ModelFileDamaged, ModelNotFound
from engine.fit import machine as machines
from engine.fit import planner, quality
from engine.fit.cache_size import KV_BLOCKS
from engine.fit.measured import Measurements
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import MIB, DeviceFit, FitPlan, Machine, Sibling, Wishes
from engine.fit.words import size_text
from engine.models import gguf, starter
from engine.models.gguf_header import GgufHeader

#: what a device's name begins with, where it is not llama.cpp's CUDA
_BACKENDS = ("RPC", "Vulkan", "ROCm", "MUSA", "SYCL", "Metal", "MTL", "OpenCL", "CANN")
_MAX_ARRAY = 4096


def run(options: argparse.Namespace, early: EarlyLook | None = None) -> int:
    """Prints the plan. The exit status is 0 whenever there is one, whatever its verdict.

    Args:
        early: a look at this computer that has begun already.

    Raises:
        EngineError: no such file, no model, options that no load could have.
    """
    wishes = _wishes(options)
    look = _Look(options, early)
    path = _here(options.model)
    if path is None:
        return _run_remote(options, wishes, look)
    header, more, notes = _headers(path)
    found = _planned(options, wishes, look, header, more)
    _say(options, report(found, notes), _lines(found, _title(header, more), notes))
    return 0


def _run_remote(options: argparse.Namespace, wishes: Wishes, look: _Look) -> int:
    """The same for a repository on the hub, which is asked because the user named it."""
    from engine import cli_fit_hub

    remote = cli_fit_hub.find(options.model, look.machine)
    found = _planned(options, wishes, look, remote.header, remote.more, remote.siblings)
    rows = cli_fit_hub.rows(remote, found, look.machine(), wishes, look.measurements.ratios())
    record = {**report(found, remote.notes), **cli_fit_hub.record(remote, rows)}
    _say(options, record, [*_lines(found, remote.title(), remote.notes), *cli_fit_hub.lines(rows, _VERDICTS)])
    return 0


def _planned(
    options: argparse.Namespace,
    wishes: Wishes,
    look: _Look,
    header: GgufHeader,
    more: tuple[GgufHeader, ...],
    siblings: tuple[Sibling, ...] = (),
) -> FitPlan:
    return planner.plan(
        header,
        look.machine(),
        wishes,
        more=more,
        siblings=siblings,
        probe=_probe(header, more) if options.probe else None,
        corrections=look.measurements.corrections(),
        ratios=look.measurements.ratios(),
    )


def _say(options: argparse.Namespace, record: dict[str, Any], lines: Iterable[str]) -> None:
    if options.json:
        sys.stdout.write(json_line(record) + "\n")
    else:
        for line in lines:
            sys.stdout.write(for_terminal(line) + "\n")
    sys.stdout.flush()


def _probe(header: GgufHeader, more: tuple[GgufHeader, ...]) -> planner.Probe:
    from engine.fit import probe  # only here: most questions are answered by formula

    return lambda options, devices: probe.probe([header, *more], options, devices)


# ------------------------------------------------------------------ input


class _Look:
    """The machine: as given, or looked at while the file is being read."""

    def __init__(self, options: argparse.Namespace, early: EarlyLook | None) -> None:
        self._early = early
        self._devices = tuple(_device(text) for text in options.device)
        self._ram = _ram(options.ram)
        names = [device.name for device in self._devices]
        if len(set(names)) != len(names):
            raise InvalidRequest("Two devices have the same name", details={"field": "device"})
        given = bool(self._devices) or self._ram is not None
        # what was learned on this computer says nothing about another
        self.measurements = Measurements(None if given else places.resolve().data / "fit.json")
        self._found: list[Machine] = []
        self._thread: threading.Thread | None = None
        if not given:
            self._thread = threading.Thread(target=self._ask, name="fit-machine", daemon=True)
            self._thread.start()

    def _ask(self) -> None:
        start = self._early.greeting if self._early is not None else None
        self._found.append(machines.look(measured=self.measurements.machine(), start=start))

    def machine(self) -> Machine:
        if self._thread is not None:
            self._thread.join()
            if self._found:
                return self._found[0]
        ram = self._ram or hardware.ram()
        return Machine(self._devices, ram.available_bytes, ram.total_bytes, machines.usable_cores())


def _mib(text: str, field: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 2**40:
        raise InvalidRequest(f"{text!r} is no size in MiB", details={"field": field})
    return int(value * MIB)


def _device(text: str) -> DeviceSpec:
    """ "NAME:FREE" or "NAME:FREE:TOTAL"; a name may hold colons itself."""
    match = re.fullmatch(r"(?P<name>.+?):(?P<free>[\d.]+)(:(?P<total>[\d.]+))?", text)
    if match is None:
        raise InvalidRequest(
            f"--device must be NAME:FREE_MIB or NAME:FREE_MIB:TOTAL_MIB, not {text!r}", details={"field": "device"}
        )
    free = _mib(match["free"], "device")
    total = _mib(match["total"], "device") if match["total"] else free
    name = match["name"]
    backend = next((known for known in _BACKENDS if name.upper().startswith(known.upper())), "CUDA")
    return DeviceSpec(name, "gpu", min(free, total), total, backend)


def _ram(text: str | None) -> hardware.Ram | None:
    if text is None:
        return None
    free, _, total = text.partition(":")
    available = _mib(free, "ram")
    return hardware.Ram(total_bytes=_mib(total, "ram") if total else available, available_bytes=available)


def _wishes(options: argparse.Namespace) -> Wishes:
    key, _, value = (options.kv_type or "").lower().replace("/", ",").partition(",")
    for name in (key, value):
        if name and name not in KV_BLOCKS:
            raise InvalidRequest(
                f"--kv-type must be one of {', '.join(KV_BLOCKS)}, not {name}", details={"field": "kv_type"}
            )
    for field, least in (("context", 1), ("gpu_layers", -1), ("ubatch", 1), ("parallel", 1), ("n_cpu_moe", 0)):
        number = getattr(options, field)
        if number is not None and not least <= number < 2**30:
            raise InvalidRequest(
                f"--{field.replace('_', '-')} must be at least {least}, not {number}", details={"field": field}
            )
    return Wishes(
        n_ctx=options.context,
        n_gpu_layers=options.gpu_layers,
        kv_type_k=key or None,
        kv_type_v=value or key or None,
        flash_attention=options.flash_attn,
        n_ubatch=options.ubatch,
        n_slots=options.parallel,
        swa_full=True if options.swa_full else None,
        n_cpu_moe=options.n_cpu_moe,
        tensor_split=_split(options.tensor_split),
        offload_kqv=not options.no_kv_offload,
        excluded=tuple(options.exclude),
        spread=bool(options.device),
    )


def _split(text: str | None) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in re.split(r"[,/]", text)) if text else ()
    except ValueError:
        shares = (-1.0,)
    if any(not 0 <= share < 1e9 for share in shares) or (shares and not any(shares)):
        raise InvalidRequest(f"--tensor-split must be numbers such as 3,1, not {text!r}", details={"field": "split"})
    return shares


def _here(model: str) -> Path | None:
    """The file on this computer; None if the name can only mean a repository."""
    try:
        return starter.resolve_model(model, places.resolve())
    except ModelNotFound:
        from engine.cli_fit_hub import names_repository

        if not names_repository(model):
            raise
        return None


def _headers(path: Path) -> tuple[GgufHeader, tuple[GgufHeader, ...], tuple[str, ...]]:
    """The headers of all parts, and what is to be said of them. A file that is cut short can be planned for too."""
    notes: tuple[str, ...] = ()
    try:
        header = gguf.check_file(path)
    except ModelFileDamaged as error:
        header = gguf.read_header(path, max_array=_MAX_ARRAY)
        if "need_bytes" not in error.details or not header.tensors:
            raise
        notes = ("The file is not complete; the plan is for the whole of it.",)
    more = []
    if header.split_count > 1:
        more = [gguf.read_header(part, max_array=_MAX_ARRAY) for part in gguf.shard_paths(path)[1:]]
    return header, tuple(more), notes


# ------------------------------------------------------------------ output


def _device_report(fit: DeviceFit) -> dict[str, Any]:
    need = fit.need
    return {
        "name": fit.name,
        "weights_bytes": need.weights_bytes,
        "kv_bytes": need.kv_bytes,
        "compute_bytes": need.compute_bytes,
        "overhead_bytes": need.overhead_bytes,
        "free_bytes": fit.free_bytes,
        "total_bytes": fit.total_bytes,
        "headroom_bytes": fit.headroom_bytes,
    }


def report(found: FitPlan, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plan as the JSON object that `--json` prints. All sizes in bytes."""
    options = found.options
    same = options.kv_type_k == options.kv_type_v
    return {
        "verdict": found.verdict,
        "source": found.source,
        "plan": {
            "gpu_layers": options.n_gpu_layers,
            "n_layers": found.n_layers,
            "context": found.needs.n_ctx,
            "kv_type": options.kv_type_k if same else f"{options.kv_type_k},{options.kv_type_v}",
            "flash_attn": "on" if found.needs.flash_attention else "off",
            "ubatch": options.n_ubatch,
            "parallel": options.n_slots,
            "n_cpu_moe": options.n_cpu_moe,
            "tensor_split": list(options.tensor_split),
            "kv_offload": options.offload_kqv,
            "op_offload": options.op_offload,
            "swa_full": options.swa_full,
            "devices": list(found.use_devices),
        },
        "devices": [_device_report(fit) for fit in found.devices],
        "host": _device_report(found.host),
        "speed": {
            "decode_tps_low": round(found.speed.decode_tps_low, 2),
            "decode_tps_high": round(found.speed.decode_tps_high, 2),
            "basis": found.speed.basis,
        },
        "missing_bytes": found.missing_bytes,
        "steps": [{"what": step.what, "why": step.why, "saves_bytes": step.saves_bytes} for step in found.steps],
        "reasons": list(found.reasons),
        "warnings": [*notes, *found.warnings],
    }


_VERDICTS = {
    "gpu": "fits on the GPU",
    "split": "fits, partly on the CPU",
    "cpu": "runs on the CPU",
    "too_large": "too large",
    "unknown": "not known",
}


def _title(header: GgufHeader, more: tuple[GgufHeader, ...]) -> str:
    file = gguf.summarize(header)
    size = sum(part.file_size for part in (header, *more))
    return f"{file.name}  {file.quantization}, {size_text(size)}, {quality.words(file.quantization)}"


def _lines(found: FitPlan, title: str, notes: tuple[str, ...]) -> Iterator[str]:
    yield title
    missing = f", {size_text(found.missing_bytes)} missing" if found.missing_bytes else ""
    yield f"Verdict        {_VERDICTS[found.verdict]}{missing}"
    options = found.options
    yield f"GPU layers     {options.n_gpu_layers} of {found.n_layers}"
    if options.n_cpu_moe:
        yield f"Experts        of {options.n_cpu_moe} layers on the CPU"
    yield f"Context        {found.needs.n_ctx} tokens, cache in {options.kv_type_k}"
    if found.speed.decode_tps_high:
        low, high = found.speed.decode_tps_low, found.speed.decode_tps_high
        yield f"Speed          {low:.3g} to {high:.3g} tokens a second ({found.speed.basis})"
    yield ""
    yield f"{'':14} {'weights':>10} {'KV cache':>10} {'compute':>10} {'other':>10} {'free now':>10}"
    for fit in (*found.devices, found.host):
        need = fit.need
        parts = (need.weights_bytes, need.kv_bytes, need.compute_bytes, need.overhead_bytes, fit.free_bytes)
        yield f"{fit.name:14} " + " ".join(f"{size_text(part):>10}" for part in parts)
    yield ""
    yield from found.reasons
    for text in (*notes, *found.warnings):
        yield f"Note: {text}"
