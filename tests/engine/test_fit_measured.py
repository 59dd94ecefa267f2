"""What real loads and answers teach, the machine as the fit sees it, and one step down after a failed load."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fit_plan_help import GIB, computer, gpu, make_header

from engine import events, hardware
from engine.errors import WorkerDied
from engine.fit import quality, speed
from engine.fit.before_load import measured_by_device
from engine.fit.calibrate import calibrate
from engine.fit.machine import look, machine, specs
from engine.fit.measured import Measurements
from engine.fit.needs import LoadOptions
from engine.fit.placement import prepare
from engine.fit.plan_records import MIB, Measured, Wishes
from engine.fit.planner import plan
from engine.fit.step_down import offers, step_down

DENSE = make_header()
EXPERTS = make_header(n_layer=48, n_embd=2048, n_ff=6144, n_head_kv=4, n_expert=128, expert_used=8, n_ff_exp=768)
RAM = hardware.Ram(total_bytes=64 * GIB, available_bytes=60 * GIB)


# ------------------------------------------------------------------ kept results


def test_speeds_are_kept_and_correct_the_next_estimate(tmp_path: Path) -> None:
    path = tmp_path / "data" / "fit.json"
    found = computer(gpu(24))
    before = plan(DENSE, found).speed
    kept = Measurements(path)
    for measured in (20.0, 21.0, 90.0, 20.5, 20.2):
        kept.add_speed("CUDA0", "Q4_K", 40.0, measured)
    after = plan(DENSE, found, ratios=Measurements(path).ratios()).speed
    assert (before.basis, after.basis) == ("estimate", "calibrated")
    middle = before.decode_tps_low / 0.6
    assert after.decode_tps_low == pytest.approx(middle * 20.5 / 40 * 0.85)
    assert after.decode_tps_high / after.decode_tps_low == pytest.approx(1.2 / 0.85)


def test_another_quantization_in_the_same_place_helps_but_does_not_vouch() -> None:
    kept = Measurements(None)
    kept.add_speed("CUDA0", "Q8_0", 40.0, 20.0)
    found = plan(DENSE, computer(gpu(24)), ratios=kept.ratios()).speed
    plain = plan(DENSE, computer(gpu(24))).speed
    assert found.basis == "estimate" and found.decode_tps_high == pytest.approx(plain.decode_tps_high / 2)


def test_absurd_results_are_left_out_and_old_ones_go(tmp_path: Path) -> None:
    kept = Measurements(tmp_path / "fit.json")
    for predicted, measured in ((0, 5), (5, 0), (-1, 5), (1, 1000), (1000, 1)):
        kept.add_speed("Host", "Q4_K", predicted, measured)
    assert kept.ratios().exact == {}
    for _ in range(30):
        kept.add_speed("Host", "Q4_K", 10, 5)
    for _ in range(20):
        kept.add_speed("Host", "Q4_K", 10, 10)
    assert Measurements(tmp_path / "fit.json").ratios().exact == {("Host", "Q4_K"): 1.0}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"schema": 0}', b'{"speeds": 5}', b"[]"])
def test_a_damaged_file_starts_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fit.json"
    path.write_bytes(content)
    kept = Measurements(path)
    assert kept.ratios().exact == {} and kept.corrections() == {}
    kept.add_memory("CUDA0", "m", 100, 300)
    assert Measurements(path).corrections() == {"CUDA0": 200}


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    kept = Measurements(blocked / "fit.json")
    kept.add_speed("Host", "Q4_K", 10, 5)
    assert kept.ratios().of("Host", "Q4_K") == (0.5, True)


def test_only_what_was_too_little_is_corrected() -> None:
    kept = Measurements(None)
    for measured in (90, 100, 150):
        kept.add_memory("CUDA0", "m", 100, measured)
    assert kept.corrections() == {}
    for measured in (150, 160, 170):
        kept.add_memory("CUDA0", "m", 100, measured)
    assert kept.corrections() == {"CUDA0": 50}


def test_buffers_belong_to_devices() -> None:
    buffers = {
        "CPU_Mapped model": 1, "CPU_REPACK model": 2, "CUDA0 model": 4, "CUDA0 KV": 8, "CUDA0 compute": 16,
        "CUDA_Host compute": 32, "RPC0[127.0.0.1:50052] RS": 64, "CPU output": 128, "CUDA01 model": 256,
    }  # fmt: skip
    assert measured_by_device(buffers, ["CUDA0", "RPC0"]) == {
        "CUDA0": {"weights": 4, "kv": 8, "compute": 16},
        "RPC0": {"kv": 64},
        "Host": {"weights": 259, "compute": 32},
    }


# ------------------------------------------------------------------ speed


def tps(header: Any, found: Any, **options: Any) -> float:
    model = prepare(header)
    made = LoadOptions(n_ctx=8192, **{"n_gpu_layers": len(model.shape.layers) + 1, **options})
    return 1 / speed.seconds_per_token(model, made, found.devices, found)


def test_speed_follows_bytes_and_bandwidth() -> None:
    fast, slow = (computer(gpu(24)) for _ in range(2))
    fast = replace(fast, bandwidths={"CUDA0": 1000e9})
    slow = replace(slow, bandwidths={"CUDA0": 250e9})
    assert 3 < tps(DENSE, fast) / tps(DENSE, slow) < 4
    assert tps(DENSE, fast) > 1.3 * tps(make_header(kind=8), fast)
    # few experts work on a token: much faster than its size says
    assert tps(EXPERTS, fast) > 3 * tps(make_header(n_layer=100), fast)


def test_partial_offload_is_between_and_harmonic() -> None:
    found = replace(computer(gpu(24)), bandwidths={"CUDA0": 1000e9, "Host": 40e9})
    speeds = [tps(DENSE, found, n_gpu_layers=n) for n in (0, 8, 16, 24, 33)]
    assert speeds == sorted(speeds)
    half = 1 / (16.5 / 33 / speeds[0] + 16.5 / 33 / speeds[-1])
    assert speeds[2] == pytest.approx(half, rel=0.15)
    assert tps(EXPERTS, found, n_cpu_moe=48) > tps(EXPERTS, found, n_gpu_layers=0)


def test_a_long_chat_is_slower() -> None:
    found, model = computer(gpu(24)), prepare(DENSE)
    options = LoadOptions(n_ctx=32768, n_gpu_layers=33)
    times = [speed.seconds_per_token(model, options, found.devices, found, n) for n in (0, 1000, 30000)]
    assert times[0] < times[1] < times[2]


def test_a_calibration_is_kept(starter_model: Path, tmp_path: Path) -> None:
    kept = Measurements(tmp_path / "fit.json")
    found = calibrate(kept, starter_model, machine=computer(ram_gib=16, cores=1))
    assert found.problems == () and found.bandwidths["Host"] > 1e8 and found.speeds["Host"] > 0.5
    again = Measurements(tmp_path / "fit.json")
    assert again.calibrated and again.machine().bandwidths == pytest.approx(found.bandwidths)
    assert again.machine().rates == pytest.approx(found.rates) and len(found.rates) > 15
    assert 0 < again.machine().layer_s < 0.05
    # the starter's own answer is what it was calibrated with
    ratio, exact = again.ratios().of("Host", "Q4_1")
    assert (exact and ratio == pytest.approx(1, abs=0.02)) or again.machine().layer_s == pytest.approx(5e-6)


def test_a_calibration_makes_the_processor_known() -> None:
    kept = Measurements(None)
    kept.add_speed("Host", "Q4_0", 10, 20)
    kept.add_speed("CUDA0+Host", "Q4_0", 10, 20)
    kept.add_speed("CUDA0", "Q4_0", 10, 30)
    kept.set_machine(Measured({"Host": 20e9}, {"Q4_0": 9e9, "Q8_0": 0.0}, 1e-4))
    # what was judged against the old figures for the processor says nothing any more
    assert kept.ratios().exact == {("CUDA0", "Q4_0"): 3.0}
    assert kept.machine() == Measured({"Host": 20e9}, {"Q4_0": 9e9}, 1e-4)
    kept.set_machine(Measured())
    assert kept.machine() == Measured({"Host": 20e9}, {"Q4_0": 9e9}, 1e-4)


def test_measured_kernels_take_the_place_of_the_table() -> None:
    host = computer(ram_gib=64, cores=2)
    known = replace(host, rates={"Q4_0": 3e9}, layer_s=1e-4)
    assert speed.rate("Q4_0", None, known) == 3e9
    assert speed.rate("Q6_K", None, known) == speed.rate("Q6_K", None, host)
    # a layer's own time, found from an answer, gives that answer back
    model, options = prepare(DENSE), LoadOptions(n_ctx=1024, n_gpu_layers=0)
    seconds = speed.seconds_per_token(model, options, (), known, 32)
    assert speed.layer_seconds(model, options, replace(known, layer_s=0), seconds, 32) == pytest.approx(1e-4)
    # an answer that was quicker than its weights can be read does not make layers cost less than nothing
    assert speed.layer_seconds(model, options, known, seconds / 100, 32) > 0


def test_a_calibration_that_fails_says_so(tmp_path: Path) -> None:
    nothing = tmp_path / "none.gguf"
    found = calibrate(Measurements(None), nothing, machine=computer(ram_gib=16, cores=1))
    assert found.speeds == {} and len(found.problems) == 1


# ------------------------------------------------------------------ quality


def test_quality_in_words() -> None:
    assert quality.words("Q8_0") == "no loss that can be noticed"
    assert quality.words("UD-Q4_K_XL") == quality.words("q4_k_m") == "slight loss"
    assert quality.words("IQ1_S") == "hardly usable" and quality.words("Q9_Z") == "loss not known"
    assert quality.words("MXFP4_MOE") == "as the model was made"
    assert [name for name in ("Q8_0", "Q4_K_M", "IQ3_M", "IQ3_S", "Q2_K", "nonsense") if quality.good_enough(name)] == [
        "Q8_0", "Q4_K_M", "IQ3_M",
    ]  # fmt: skip


# ------------------------------------------------------------------ the machine


def device(name: str, kind: str, backend: str, free: float, total: float, description: str = "") -> events.Device:
    return events.Device(name, description or name, kind, backend, int(free * GIB), int(total * GIB))


CPU = device("CPU", "cpu", "CPU", 60, 64)
CUDA = device("CUDA0", "gpu", "CUDA", 20, 24, "NVIDIA GeForce RTX 4090")
REPORT = hardware.GpuReport("ok", "fine", (hardware.Gpu(0, "NVIDIA GeForce RTX 4090", bandwidth_bytes_s=1008e9),))


def test_devices_come_from_llama_cpp_and_bandwidths_from_the_driver() -> None:
    found = machine([CPU, CUDA], ram=RAM, gpus=REPORT)
    assert [(d.name, d.kind, d.shared) for d in found.devices] == [("CUDA0", "gpu", False)]
    assert found.bandwidths == {"CUDA0": 1008e9} and found.notes == ()
    assert machine([CPU, CUDA], ram=RAM, gpus=REPORT, measured=Measured({"CUDA0": 900e9})).bandwidths["CUDA0"] == 900e9


def test_types_of_devices() -> None:
    shared = device("Vulkan0", "igpu", "Vulkan", 15.9, 15.9)
    remote = device("RPC0", "gpu", "RPC[127.0.0.1:50052]", 8, 8)
    odd = device("CUDA9", "gpu", "CUDA", 30, 24)
    found = {spec.name: spec for spec in specs([CPU, shared, remote, odd, device("BLAS", "accel", "BLAS", 0, 0)])}
    assert set(found) == {"Vulkan0", "RPC0", "CUDA9"}
    assert found["Vulkan0"].shared and found["RPC0"].backend == "RPC"
    assert found["CUDA9"].free_bytes == 24 * GIB, "free is never more than there is"


@pytest.mark.parametrize(
    ("state", "said"),
    [("version_mismatch", True), ("gpu_lost", True), ("timeout", True), ("no_driver", True), ("no_library", False)],
)
def test_states_of_the_driver_are_words(state: str, said: bool) -> None:
    """B32, B33: the plan is for the processor, and says why."""
    found = machine([CPU], ram=RAM, gpus=hardware.GpuReport(state, "In words."))
    assert found.notes == (("In words.",) if said else ())
    made = plan(DENSE, found)
    assert made.verdict == "cpu" and ("In words." in made.warnings) == said


def test_a_card_that_llama_cpp_does_not_list() -> None:
    found = machine([CPU], ram=RAM, gpus=REPORT)
    assert any("RTX 4090" in text and "no CUDA" in text for text in found.notes)


def test_a_divided_card_is_named() -> None:
    gpus = hardware.GpuReport("ok", "fine", (hardware.Gpu(0, "NVIDIA H200", mig=True),))
    assert any("MIG" in text for text in machine([CPU, CUDA], ram=RAM, gpus=gpus).notes)


def test_a_worker_that_hangs_is_a_state() -> None:
    def start() -> events.Hello:
        raise WorkerDied("The worker did not start within 20 s")

    found = look(start=start, gpus=lambda: hardware.GpuReport("timeout", "The NVIDIA driver did not answer."))
    assert found.devices == () and found.ram_available_bytes > 0
    assert any("did not start" in text for text in found.notes) and any("driver" in text for text in found.notes)
    assert plan(DENSE, found).verdict in ("cpu", "too_large")


def test_a_driver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "NVML_TIMEOUT_S", 0.2)
    hello = events.Hello(protocol=1, engine="worker", pid=1, devices=(CPU, CUDA))
    began = time.monotonic()
    found = look(start=lambda: hello, gpus=lambda: time.sleep(3) or REPORT)  # type: ignore[func-returns-value]
    assert time.monotonic() - began < 2 and [d.name for d in found.devices] == ["CUDA0"]


def test_this_machine() -> None:
    found = look()
    assert found.ram_total_bytes >= found.ram_available_bytes > 0 and found.cores >= 1


# ------------------------------------------------------------------ one step down


def test_a_step_down_needs_a_tenth_less() -> None:
    found = computer(gpu(24))
    made = plan(DENSE, found, Wishes(n_ctx=8192))
    model = prepare(DENSE)
    less = step_down(model, found, found.devices, Wishes(n_ctx=8192), made)
    assert less is not None
    smaller, given_up = less
    before, after = (p.devices[0].need.total_bytes for p in (made, smaller))
    assert after <= before * 0.9 and smaller.options.n_ctx == 8192
    assert given_up[0] == "KV cache in q8_0"


def test_a_step_down_leaves_the_users_choices() -> None:
    found, model = computer(gpu(24)), prepare(DENSE)
    wishes = Wishes(n_ctx=8192, n_gpu_layers=33, kv_type_k="f16", kv_type_v="f16", n_ubatch=512, n_cpu_moe=0)
    made = plan(DENSE, found, wishes)
    assert step_down(model, found, found.devices, wishes, made) is None
    assert any("context of 4096" in text for text in offers(model, wishes, made))


def test_a_step_down_without_a_gpu() -> None:
    found, model = computer(ram_gib=64), prepare(DENSE)
    made = plan(DENSE, found)
    less = step_down(model, found, (), Wishes(), made)
    assert less is not None and less[0].verdict == "cpu"
    assert less[0].host.need.kv_bytes < made.host.need.kv_bytes - 100 * MIB


def test_experts_go_before_layers_in_a_step_down() -> None:
    found, model = computer(gpu(24)), prepare(EXPERTS)
    wishes = Wishes(n_ctx=8192, kv_type_k="f16", kv_type_v="f16", n_ubatch=512)
    less = step_down(model, found, found.devices, wishes, plan(EXPERTS, found, wishes))
    assert less is not None and less[0].options.n_cpu_moe == 12 and less[0].options.n_gpu_layers == 49
