"""Ten seconds that make the speed estimates this computer's own: memory bandwidth, and a short answer of a small model
on the processor and, where there are devices, on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine import events
from engine.errors import EngineError
from engine.fit import speed
from engine.fit.bandwidth import measured_in_child
from engine.fit.before_load import read_all
from engine.fit.machine import look
from engine.fit.measured import Measurements
from engine.fit.placement import prepare
from engine.fit.plan_records import Machine, Wishes
from engine.fit.planner import plan
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient

_BANDWIDTH_S = 1.5
_TOKENS = 64
_CONTEXT = 1024
_LOAD_S, _ANSWER_S = 60.0, 20.0
_PROMPT = "Once upon a time"


@dataclass(frozen=True)
class Calibration:
    """What was found. speeds: tokens a second by place; problems: what could not be measured, in words."""

    bandwidths: dict[str, float]
    speeds: dict[str, float]
    problems: tuple[str, ...] = ()


def calibrate(
    measurements: Measurements,
    model: Path | None,
    *,
    machine: Machine | None = None,
    command: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Measure and keep. Takes about ten seconds and all cores; not for the window's thread.

    Args:
        model: a small model (the starter); None: only the bandwidth is measured.
        command: the worker to run; for tests.
    """
    found = machine or look()
    progress("Measuring the memory")
    host = measured_in_child(_BANDWIDTH_S, found.cores)
    bandwidths = {"Host": host} if host else {}
    measurements.set_bandwidths(bandwidths)
    found = replace(found, bandwidths={**found.bandwidths, **bandwidths})
    problems = [] if host else ["The memory bandwidth could not be measured."]
    speeds: dict[str, float] = {}
    if model is not None:
        for layers in (0, -1) if found.devices else (0,):
            progress("Measuring a short answer on the GPU" if layers else "Measuring a short answer on the processor")
            try:
                place, tps = _answer(measurements, model, found, layers, command)
                speeds[place] = tps
            except EngineError as error:
                problems.append(error.message)
    return Calibration(bandwidths, speeds, tuple(problems))


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
        request = protocol.Generate(id="answer", prompt=_PROMPT, sampling=sampling, logprobs=False)
        done = client.request(request, _ANSWER_S)
    finally:
        client.stop(1.0)
    assert isinstance(done, events.Done)
    tps = done.timings.decode_tps or 0.0
    options = made.options
    place = speed.place_key(speed.placed(model, options, devices), devices)
    seconds = speed.seconds_per_token(model, options, devices, machine, _TOKENS // 2)
    if seconds > 0:
        measurements.add_speed(place, speed.dominant_type(model), 1 / seconds, tps)
    return place, tps
