"""Plans for random machines: never more than a device has, and never much less than it could hold."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from fit_plan_help import exceeds, phantom_headers, random_machines

from engine.fit import probe as oracle
from engine.fit.lists import judge
from engine.fit.placement import DeviceSpec, prepare
from engine.fit.plan_records import FitPlan, Machine, Wishes
from engine.fit.planner import plan
from engine.fit.room import Judge
from engine.fit.split import spread
from engine.models.gguf_header import GgufHeader

N_MACHINES, N_PROBED = 200, 24
EVERY_DEVICE = Wishes(spread=True)


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufHeader]:
    return phantom_headers(tmp_path_factory.mktemp("phantoms"))


def plans(headers: dict[str, GgufHeader]) -> Iterator[tuple[str, GgufHeader, Machine, FitPlan]]:
    names = sorted(headers)
    for number, machine in enumerate(random_machines(N_MACHINES)):
        name = names[number % len(names)]
        yield name, headers[name], machine, plan(headers[name], machine, EVERY_DEVICE)


def most_layers(header: GgufHeader, machine: Machine, found: FitPlan) -> int:
    """The largest number of layers that fits with these settings, tried one by one; any division over the devices."""
    model = prepare(header)
    devices = [device for device in machine.devices if device.kind == "gpu"]
    judged = Judge(model, machine, devices)
    best = 0
    for n in range(judged.n_layers + 1):
        look = judged.look(replace(found.options, n_gpu_layers=n, tensor_split=()))
        divisions = [(), *spread(judged, look)] if len(devices) > 1 else [()]
        if any(not judged.look(replace(look.options, tensor_split=shares)).device_short for shares in divisions):
            best = n
    return best


def test_no_plan_exceeds_a_device_and_few_waste_one(headers: dict[str, GgufHeader]) -> None:
    distances = []
    for name, header, machine, found in plans(headers):
        assert exceeds(found, header, machine) <= 0, (name, machine, found.options)
        for fit in found.devices:
            assert fit.need.total_bytes + fit.headroom_bytes <= fit.free_bytes or not fit.need.total_bytes, (name, fit)
        distances.append(most_layers(header, machine, found) - found.options.n_gpu_layers)
    near = sum(abs(distance) <= 1 for distance in distances) / len(distances)
    assert near >= 0.9, statistics.multimode(distances)


@pytest.mark.timeout(300)
def test_llama_cpp_agrees_that_it_fits(headers: dict[str, GgufHeader]) -> None:
    """Its own dry run of a sample of the plans, on stand-ins for these devices."""
    chosen = random.Random(11).sample(list(plans(headers)), N_PROBED)
    n_asked = 0
    for name, header, machine, found in chosen:
        used = [device for device in machine.devices if device.name in found.use_devices]
        said = oracle.probe(header, found.options, used)
        if said.source != "probe":
            continue
        n_asked += 1
        for device, need in zip(used, said.devices, strict=True):
            counted = need.weights_bytes + need.kv_bytes + need.compute_bytes
            assert counted <= device.free_bytes, (name, device, need, found.options)
    assert n_asked >= N_PROBED * 0.8


def test_a_list_of_200_files_is_judged_at_once(headers: dict[str, GgufHeader], slower: Callable[[], float]) -> None:
    names = sorted(headers)
    machine = Machine((DeviceSpec("CUDA0", "gpu", 10 << 30, 12 << 30, "CUDA"),), 64 << 30, 64 << 30, 8)
    for name in names:
        judge(headers[name], machine)
    began = time.process_time()
    verdicts = [judge(headers[names[i % len(names)]], machine) for i in range(200)]
    took = time.process_time() - began
    assert {verdict.verdict for verdict in verdicts} >= {"gpu", "split"}
    assert took < 0.6 * slower(), f"{took * 1000:.0f} ms for 200 files"


def test_the_short_answer_is_the_long_one(headers: dict[str, GgufHeader]) -> None:
    """The verdict of a list agrees with the plan's; layers are an estimate there."""
    agree = []
    for name, header in headers.items():
        for gib in (3, 6, 10, 16, 24):
            machine = Machine((DeviceSpec("CUDA0", "gpu", gib << 30, gib << 30, "CUDA"),), 64 << 30, 64 << 30, 8)
            short, long = judge(header, machine), plan(header, machine)
            agree.append(short.verdict == long.verdict)
            if short.verdict == "split" and long.verdict == "split" and not long.options.n_cpu_moe:
                assert abs(short.n_gpu_layers - long.options.n_gpu_layers) <= 3, (name, gib)
    assert sum(agree) / len(agree) >= 0.9
