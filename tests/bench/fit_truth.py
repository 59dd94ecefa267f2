"""How far the fit is from llama.cpp's own figures: the worst deviations of each sort of row, as a table.

    python tests/bench/fit_truth.py [formula|probe] [MODEL.gguf]

"formula" (the default) judges every row of tests/phantom/truth.jsonl.xz by formula, "probe" by the dry run in a child
(some minutes). With a model file, its answer by formula and by dry run is printed instead, for the processor alone and
for one and two devices.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine")]

from fit_help import GIB, MIB, devices, header, options, pairs, rows  # noqa: E402

from engine.fit.needs import DeviceSpec, LoadOptions, Needs, needs  # noqa: E402
from engine.fit.probe import Prober  # noqa: E402


def sort_of(row: dict[str, object], device: str) -> str:
    a = row["args"]
    assert isinstance(a, dict)
    outputs = "worker's outputs" if a["n_outputs"] else "all outputs"
    layers = "whole" if a["ngl"] >= 99 and not a["n_cpu_moe"] else "in part"
    where = "host" if device == "Host" else "device"
    return f"{row['backend']:9} {a['n_devices']} dev, {layers:7}, {outputs:16} {where}"


def table(by_probe: bool) -> None:
    """Compute is given as the lowest and the highest difference; weights and caches as the largest."""
    worst: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    prober = Prober() if by_probe else None
    began, count = time.perf_counter(), 0
    for row in rows():
        known = header(row["model"])
        ask = prober.probe if prober else needs
        answer: Needs = ask(known, options(row), devices(row))
        count += 1
        for device, ours, theirs in pairs(row, answer):
            exact = abs(ours.weights_bytes - theirs["model"]) + abs(ours.kv_bytes - theirs["context"])
            off = ours.compute_bytes - theirs["compute"]
            worst[sort_of(row, device)].append((off / MIB, off / max(1, theirs["compute"]), exact))
    took = time.perf_counter() - began
    if prober:
        prober.close()
    print(f"{'rows':63} {'n':>4} {'weights+KV':>11} {'compute: lowest':>20} {'highest':>20} {'below':>6}")
    for sort, found in sorted(worst.items()):
        low, high = min(found), max(found)
        below = sum(off < -0.011 for off, _, _ in found)
        print(
            f"{sort:63} {len(found):4} {max(e for _, _, e in found):9} B"
            f" {low[0]:9.2f} MiB {low[1]:+6.1%} {high[0]:9.2f} MiB {high[1]:+6.1%} {below:6}"
        )
    print(f"{count} rows, {took / count * 1000:.1f} ms each")


def one_model(path: str) -> None:
    prober = Prober()
    for count in range(3):
        specs = [DeviceSpec(f"CUDA{i}", "gpu", 8 * GIB, 8 * GIB) for i in range(count)]
        for answer in (needs(header_of(path), LoadOptions(), specs), prober.probe(path, LoadOptions(), specs)):
            for need in (*answer.devices, answer.host):
                parts = (need.weights_bytes, need.kv_bytes, need.compute_bytes, need.overhead_bytes)
                print(f"{answer.source:8}{need.name:8}", *(f"{part / MIB:10.2f}" for part in parts), *answer.unknown)
    prober.close()


def header_of(path: str):  # type: ignore[no-untyped-def]
    from engine.models.gguf import check_file

    return check_file(path)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments and arguments[-1].endswith(".gguf"):
        one_model(arguments[-1])
    else:
        table("probe" in arguments)
