"""Some seconds that make the speed estimates this computer's own.

Measured are the memory's bandwidth, the speed of llama.cpp's kernel for each tensor type, and a short answer of a small
model on the processor and, where there are devices, on them. What a layer costs beside its weights is what the answer
took longer than its weights.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine import events
from engine.errors import EngineError
from engine.fit import speed
from engine.fit.bandwidth import measured_in_child
from engine.fit.before_load import read_all
from engine.fit.machine import look
from engine.fit.measured import Measurements
from engine.fit.placement import prepare
from engine.fit.plan_records import Machine, Measured, Wishes
from engine.fit.planner import plan
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient
from engine.worker.process import NO_WINDOW, child_env, is_frozen, own_program

_BANDWIDTH_S = 1.5
#: answers, and tokens of each; the best is the machine's own speed, as with the bandwidth
_ANSWERS, _TOKENS = 3, 48
_CONTEXT = 1024
_LOAD_S, _ANSWER_S, _KERNELS_S = 60.0, 20.0, 60.0
_PROMPT = "Once upon a time"


@dataclass(frozen=True)
class Calibration:
    """What was found.

    Attributes:
        speeds: tokens a second by place.
        problems: what could not be measured, in words.
        rates: bytes of weights a second on the processor, by tensor type.
    """

    bandwidths: dict[str, float]
    speeds: dict[str, float]
    problems: tuple[str, ...] = ()
    rates: dict[str, float] = field(default_factory=dict)


def calibrate(
    measurements: Measurements,
    model: Path | None,
    *,
    machine: Machine | None = None,
    command: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Measure and keep. Takes about twenty seconds and all cores; not for the window's thread.

    Args:
        model: a small model (the starter); None: only the bandwidth is measured.
        command: the worker to run; for tests.
    """
    found = machine or look()
    progress("Measuring the memory")
    host = measured_in_child(_BANDWIDTH_S, found.cores)
    bandwidths = {"Host": host} if host else {}
    problems = [] if host else ["The memory bandwidth could not be measured."]
    progress("Measuring the processor with each quantization")
    rates = kernel_rates(found.cores)
    if not rates:
        problems.append("The speed of the quantizations could not be measured.")
    measurements.set_machine(Measured(bandwidths, rates))
    found = replace(found, bandwidths={**found.bandwidths, **bandwidths}, rates=rates)
    speeds: dict[str, float] = {}
    if model is not None:
        for layers in (0, -1) if found.devices else (0,):
            progress("Measuring a short answer on the GPU" if layers else "Measuring a short answer on the processor")
            try:
                place, tps = _answer(measurements, model, found, layers, command)
                speeds[place] = tps
            except EngineError as error:
                problems.append(error.message)
    return Calibration(bandwidths, speeds, tuple(problems), rates)


def kernel_rates(threads: int) -> dict[str, float]:
    """Bytes a second of weights on the processor by tensor type, found in a child; empty where it fails."""
    more = ["--kernel-rates"] if is_frozen() else ["-m", "engine.worker.kernel_rates"]
    try:
        done = subprocess.run(
            [own_program(), *more, str(threads)],
            capture_output=True,
            timeout=_KERNELS_S,
            check=True,
            env=child_env(),
            creationflags=NO_WINDOW,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {str(name): float(rate) for name, rate in found.items() if rate > 0}


def _answer(
    measurements: Measurements, path: Path, machine: Machine, layers: int, command: Sequence[str] | None
) -> tuple[str, float]:
    """(place, tokens a second) of a short greedy answer, kept for the estimates."""
    header, more = read_all(path)
    model = prepare(header, more)
    made = plan(header, machine, Wishes(n_ctx=_CONTEXT, n_gpu_layers=layers, kv_type_k="f16", kv_type_v="f16"))
    devices = [device for device in machine.devices if device.name in made.use_devices] if layers else []
    client = WorkerClient(lambda event: None, command=command)
    try:
        client.start()
        names = tuple(device.name for device in devices) or ((protocol.NO_DEVICE,) if machine.devices else ())
        load = protocol.Load(id="load", path=str(path), n_ctx=_CONTEXT, n_gpu_layers=layers, n_slots=1, devices=names)
        client.request(load, _LOAD_S)
        sampling = SamplingParams(temperature=0.0, max_tokens=_TOKENS, seed=1)
        tps = 0.0
        for number in range(_ANSWERS):
            request = protocol.Generate(id=f"answer-{number}", prompt=_PROMPT, sampling=sampling, logprobs=False)
            done = client.request(request, _ANSWER_S)
            assert isinstance(done, events.Done)
            tps = max(tps, done.timings.decode_tps or 0.0)
    finally:
        client.stop(1.0)
    options = made.options
    place = speed.place_key(speed.placed(model, options, devices), devices)
    if place == speed.HOST_KEY and machine.rates and tps > 0:
        layer_s = speed.layer_seconds(model, options, machine, 1 / tps, _TOKENS // 2)
        measurements.set_machine(Measured(layer_s=layer_s))
        machine = replace(machine, layer_s=layer_s)
    seconds = speed.seconds_per_token(model, options, devices, machine, _TOKENS // 2)
    if seconds > 0:
        measurements.add_speed(place, speed.dominant_type(model), 1 / seconds, tps)
    return place, tps
