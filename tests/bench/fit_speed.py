"""Estimated beside measured decode speed, for quantizations of the starter model made by llama.cpp's own quantizer.

    python tests/bench/fit_speed.py [--rounds 8] [--tokens 64] [--threads N] [--kinds Q8_0,Q4_0,Q5_1] [--cpu-time]

Three estimates: as a fresh installation makes it, after the calibration that the settings offer (which knows only the
starter), and after real answers of each quantization. Answers of all quantizations are written in turns, so that other
work on the machine meets all alike; every second round teaches, the others are estimated.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from engine import events
from engine.fit import speed
from engine.fit.before_load import read_all
from engine.fit.calibrate import calibrate
from engine.fit.machine import machine, usable_cores
from engine.fit.measured import Measurements
from engine.fit.needs import LoadOptions
from engine.fit.placement import Model, prepare
from engine.fit.plan_records import Machine
from engine.models import starter
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient

_QUANTIZE = """
import sys, llama_cpp.llama_cpp as L
L.llama_backend_init()
options = L.llama_model_quantize_default_params()
options.ftype, options.allow_requantize, options.nthread = int(sys.argv[3]), True, 2
sys.exit(L.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), options))
"""
#: llama.h, enum llama_ftype
_FTYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K_M": 15, "Q6_K": 18}
_PROMPT = "Once upon a time there was"
_CONTEXT = 1024
#: the starter's own; llama.cpp keeps its tensors as they are
_OWN = "Q4_1"


def quantize(source: Path, kind: str, folder: Path) -> Path:
    """The model in another quantization, by llama.cpp in a child process."""
    target = folder / f"{kind}.gguf"
    command = [sys.executable, "-c", _QUANTIZE, str(source), str(target), str(_FTYPES[kind])]
    subprocess.run(command, check=True, capture_output=True)
    return target


class Runner:
    """One loaded worker per model."""

    def __init__(self, path: Path, threads: int) -> None:
        self.client = WorkerClient(lambda event: None)
        self.client.start()
        load = protocol.Load(id="load", path=str(path), n_ctx=_CONTEXT, n_gpu_layers=0, n_slots=1, n_threads=threads)
        self.client.request(load, 60)
        self.count = 0

    def answer(self, tokens: int, cpu_time: bool) -> float:
        """Tokens a second of the clock, or of the processor's time (one thread), which other programs do not take."""
        self.count += 1
        process = psutil.Process(self.client.pid)
        before = sum(process.cpu_times()[:2])
        request = protocol.Generate(
            id=f"answer-{self.count}",
            prompt=_PROMPT,
            sampling=SamplingParams(temperature=0.0, max_tokens=tokens, seed=1, logit_bias={0: -1e9, 2: -1e9}),
            logprobs=False,
        )
        done = self.client.request(request, 120)
        assert isinstance(done, events.Done) and done.timings.decode_tps
        if cpu_time:
            return (tokens + done.usage.prompt_tokens / 4) / (sum(process.cpu_times()[:2]) - before)
        return done.timings.decode_tps


def predicted(model: Model, here: Machine, tokens: int) -> float:
    options = LoadOptions(n_ctx=_CONTEXT, n_gpu_layers=0)
    return 1 / speed.seconds_per_token(model, options, (), here, 6 + tokens // 2)


def table(
    kinds: list[str], rounds: int, tokens: int, threads: int, cpu_time: bool
) -> list[tuple[str, float, float, float, float]]:
    """(kind, measured, fresh, calibrated with the starter, calibrated by answers of its own), tokens a second."""
    source = starter.find()
    assert source is not None, "the starter model is not installed"
    fresh = replace(machine((), cores=threads), bandwidths={})
    known, exact = Measurements(None), Measurements(None)
    calibrate(known, source, machine=fresh)
    found = known.machine()
    here = replace(fresh, bandwidths=found.bandwidths, rates=found.rates, layer_s=found.layer_s)
    with tempfile.TemporaryDirectory() as folder:
        paths = {_OWN: source, **{kind: quantize(source, kind, Path(folder)) for kind in kinds}}
        models = {}
        for kind, path in paths.items():
            header, more = read_all(path)
            models[kind] = prepare(header, more)
        runners = {kind: Runner(path, threads) for kind, path in paths.items()}
        try:
            answers = [
                {kind: runner.answer(tokens, cpu_time) for kind, runner in runners.items()} for _ in range(rounds + 1)
            ]
        finally:
            for runner in runners.values():
                runner.client.stop()
    # the very first answer of each reads the file from the disk; then the odd ones teach
    for first in answers[1::2]:
        for kind, tps in first.items():
            exact.add_speed("Host", speed.dominant_type(models[kind]), predicted(models[kind], here, tokens), tps)
    rows = []
    for kind in kinds:
        model = models[kind]
        measured = statistics.median(found[kind] for found in answers[2::2])
        base = predicted(model, here, tokens)
        main_type = speed.dominant_type(model)
        by_starter = base * known.ratios().of("Host", main_type)[0]
        by_itself = base * exact.ratios().of("Host", main_type)[0]
        rows.append((kind, measured, predicted(model, fresh, tokens), by_starter, by_itself))
    read = found.bandwidths.get("Host", 0.0)
    print(f"threads {threads}, read bandwidth {read / 1e9:.1f} GB/s, load {os.getloadavg()[0]:.1f}")
    print("kernels, GB/s: " + ", ".join(f"{name} {rate / 1e9:.1f}" for name, rate in found.rates.items()))
    print(f"beside them {found.layer_s * 1e6:.0f} µs a layer")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--kinds", default="Q8_0,Q5_1,Q4_0")
    parser.add_argument("--cpu-time", action="store_true", help="on a busy machine: by processor time, one thread")
    options = parser.parse_args()
    options.threads = 1 if options.cpu_time else options.threads
    rows = table(options.kinds.split(","), max(2, options.rounds), options.tokens, options.threads, options.cpu_time)
    print(f"{'':8} {'measured':>9} {'fresh':>16} {'by the starter':>16} {'by its answers':>16}")
    errors: list[list[float]] = [[], [], []]
    for kind, measured, *estimates in rows:
        cells = []
        for index, estimate in enumerate(estimates):
            error = estimate / measured - 1
            errors[index].append(abs(error))
            cells.append(f"{estimate:8.1f} {error:+7.0%}")
        print(f"{kind:8} {measured:9.1f} " + " ".join(cells))
    medians = [f"{statistics.median(found):16.1%}" for found in errors]
    print(f"{'median':8} {'':9} " + " ".join(medians))


if __name__ == "__main__":
    main()
