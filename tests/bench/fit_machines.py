"""Plans for random machines, checked by llama.cpp's own dry run, and the time of plans and lists.

    python tests/bench/fit_machines.py [--machines 200] [--probed 60]

Prints: plans beyond a device (must be 0) by formula and by the dry run; how far the layers are from the most that fits,
tried one by one; milliseconds per plan and per 200 verdicts of a list.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))

from fit_plan_help import exceeds, phantom_headers, random_machines
from msgspec import structs
from test_fit_machines import EVERY_DEVICE, most_layers

from engine.fit import probe as oracle
from engine.fit.lists import judge
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine
from engine.fit.planner import plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--probed", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        headers = phantom_headers(Path(folder))
    names = sorted(headers)
    verdicts: Counter[str] = Counter()
    distances: Counter[int] = Counter()
    times, beyond, probed, beyond_probe, tightest = [], 0, 0, 0, 1.0
    for number, machine in enumerate(random_machines(options.machines)):
        header = headers[names[number % len(names)]]
        began = time.perf_counter()
        found = plan(header, machine, EVERY_DEVICE)
        times.append(time.perf_counter() - began)
        verdicts[found.verdict] += 1
        beyond += exceeds(found, header, machine) > 0
        distances[most_layers(header, machine, found) - found.options.n_gpu_layers] += 1
        if probed < options.probed and number % max(1, options.machines // options.probed) == 0:
            used = [device for device in machine.devices if device.name in found.use_devices]
            said = oracle.probe(header, found.options, used)
            if said.source == "probe":
                probed += 1
                for device, need in zip(used, said.devices, strict=True):
                    left = device.free_bytes - need.weights_bytes - need.kv_bytes - need.compute_bytes
                    beyond_probe += left < 0
                    tightest = min(tightest, left / device.total_bytes)
    near = sum(count for distance, count in distances.items() if abs(distance) <= 1) / options.machines
    print(f"machines              {options.machines}, verdicts {dict(verdicts)}")
    print(f"beyond a device       {beyond} by formula, {beyond_probe} of {probed} by llama.cpp's dry run")
    print(f"least left (dry run)  {tightest:.1%} of a device")
    print(f"layers within one     {near:.1%}, distances {dict(sorted(distances.items()))}")
    print(
        f"plan                  median {sorted(times)[len(times) // 2] * 1e3:.1f} ms, worst {max(times) * 1e3:.1f} ms"
    )
    machine = Machine((DeviceSpec("CUDA0", "gpu", 10 << 30, 12 << 30, "CUDA"),), 64 << 30, 64 << 30, 8)
    files = [
        structs.replace(headers[names[number % len(names)]]) for number in range(200)
    ]  # each its own header, never seen
    for words in ("looked at first", "judged again"):
        began, began_cpu = time.perf_counter(), time.process_time()
        for header in files:
            judge(header, machine)
        took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        print(f"200 files {words:16}{took * 1e3:.0f} ms, {took_cpu * 1e3:.0f} ms of processor")
    oracle.close()


if __name__ == "__main__":
    main()
