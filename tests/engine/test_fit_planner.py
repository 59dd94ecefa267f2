"""The planner on machines that nobody has: each rung alone, the user's choices, and the cases others got wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from fit_plan_help import GIB, Q8_0, computer, exceeds, gpu, make_header

from engine.errors import InvalidRequest
from engine.fit import ladder
from engine.fit.needs import DeviceNeed, LoadOptions, Needs, needs
from engine.fit.placement import prepare
from engine.fit.plan_records import MIB, FitPlan, Machine, Sibling, Wishes
from engine.fit.planner import plan
from engine.fit.room import Judge, headroom
from engine.models.gguf_header import GgufArray, GgufHeader

DENSE = make_header()
EXPERTS = make_header(
    n_layer=48, n_embd=2048, n_ff=6144, n_head=32, n_head_kv=4, n_expert=128, expert_used=8, n_ff_exp=768
)
WHOLE = sum(t.n_bytes for t in DENSE.tensors)


def steps(found: FitPlan) -> str:
    return " | ".join(step.what for step in found.steps)


def check(found: FitPlan) -> None:
    """What holds for every plan: nothing negative, nothing that is no number, headroom kept unless it says so."""
    for value in flat(asdict(found)):
        if isinstance(value, float | int) and not isinstance(value, bool):
            assert math.isfinite(value) and value >= 0, found
    if found.verdict in ("gpu", "split", "cpu"):
        assert found.missing_bytes == 0
        if not any("tight" in text for text in found.warnings):
            for fit in found.devices:
                assert fit.need.total_bytes + fit.headroom_bytes <= fit.free_bytes or not fit.need.total_bytes


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flat(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


# ------------------------------------------------------------------ the ladder


def test_enough_room_costs_nothing() -> None:
    found = plan(DENSE, computer(gpu(24)))
    check(found)
    assert (found.verdict, found.options.n_gpu_layers, found.options.kv_type_k) == ("gpu", 33, "f16")
    assert found.options.n_ubatch == 512 and found.options.n_cpu_moe == 0
    assert all(step.what in ("Flash attention", "Sliding-window cache") for step in found.steps)


def test_more_context_only_where_it_is_cheap() -> None:
    assert plan(DENSE, computer(gpu(80))).options.n_ctx == 32768
    assert plan(DENSE, computer(gpu(6.8))).options.n_ctx == 8192
    assert plan(make_header(n_ctx_train=2048), computer(gpu(24))).options.n_ctx == 2048
    assert plan(DENSE, computer()).options.n_ctx == 8192, "on the processor a longer one would only be slow"


def judge_with(free: float, header: GgufHeader = DENSE, **options: Any) -> tuple[Judge, Any]:
    machine = computer(gpu(free))
    judge = Judge(prepare(header), machine, machine.devices)
    return judge, judge.look(LoadOptions(n_ctx=8192, n_gpu_layers=judge.n_layers, **options))


def room_for(header: GgufHeader, short_mib: float, **options: Any) -> float:
    """GiB free so that everything on the device at 8192 tokens is short by so much."""
    _, look = judge_with(64, header, **options)
    need = look.devices[0].need.total_bytes
    return (need + headroom(gpu(1)) - short_mib * MIB) / GIB


_LADDER = ("KV cache in q8_0", "Prompt in pieces of 256", "Context of", "")


@pytest.mark.parametrize(("short_mib", "n_rungs"), [(0, 0), (100, 1), (500, 2), (530, 2), (600, 3), (2000, 4)])
def test_one_rung_after_the_other(short_mib: float, n_rungs: int) -> None:
    """No more is given up than is needed, and in the order of what it costs."""
    found = plan(DENSE, computer(gpu(room_for(DENSE, short_mib))))
    check(found)
    taken = [step for step in found.steps if step.what not in ("Flash attention", "Sliding-window cache")]
    assert len(taken) == n_rungs, steps(found)
    for step, name in zip(taken, _LADDER, strict=False):
        assert step.what.startswith(name) and step.saves_bytes > 0 and step.why.endswith(".")
    assert found.verdict == ("split" if n_rungs == 4 else "gpu")
    if n_rungs == 4:
        assert taken[-1].what.endswith("of 33 layers on the CPU")


def test_each_rung_alone() -> None:
    judge, look = judge_with(5)
    for rung, field, value in (
        (ladder.kv_q8, "kv_type_k", "q8_0"),
        (ladder.small_ubatch, "n_ubatch", 256),
        (ladder.less_context, "n_ctx", 4096),
    ):
        after = rung(judge, Wishes(), look)
        assert after is not None, rung
        assert getattr(after[0].options, field) == value
        changed = [k for k, v in asdict(look.options).items() if getattr(after[0].options, k) != v]
        assert set(changed) <= {field, "kv_type_v"}, "a rung changes nothing but its own"
        assert after[1].saves_bytes == look.on_devices - after[0].on_devices


def test_rungs_leave_what_was_chosen() -> None:
    judge, look = judge_with(5)
    assert ladder.kv_q8(judge, Wishes(kv_type_k="f16"), look) is None
    assert ladder.small_ubatch(judge, Wishes(n_ubatch=512), look) is None
    assert ladder.less_context(judge, Wishes(n_ctx=8192), look) is None
    assert ladder.layers_to_cpu(judge, Wishes(n_gpu_layers=33), look) is None
    judge, look = judge_with(8, EXPERTS)
    assert ladder.experts_to_cpu(judge, Wishes(n_cpu_moe=0), look) is None


def test_no_eight_bit_cache_where_heads_do_not_divide() -> None:
    odd = make_header(n_embd=2560, n_head=32, n_head_kv=32, n_ff=6912)  # heads of 80
    judge, look = judge_with(1, odd)
    assert ladder.kv_q8(judge, Wishes(), look) is None


def test_experts_before_layers() -> None:
    found = plan(EXPERTS, computer(gpu(12)))
    check(found)
    assert found.verdict == "split"
    assert found.options.n_gpu_layers == found.n_layers and 0 < found.options.n_cpu_moe < 48
    one_less = replace(found.options, n_cpu_moe=found.options.n_cpu_moe - 1)
    need = needs(EXPERTS, one_less, [gpu(12)]).devices[0].total_bytes + found.devices[0].need.overhead_bytes
    assert need + found.devices[0].headroom_bytes > 12 * GIB, "one layer's experts less on the CPU would not fit"


def test_flash_attention_is_insisted_on_where_llama_cpp_drops_it() -> None:
    """In a hybrid of short convolutions "auto" is switched off if the last host layer attends."""
    heads = GgufArray(4, 16, b"".join((8 if i % 2 else 0).to_bytes(4, "little") for i in range(16)))
    hybrid = make_header(
        n_layer=16, n_embd=2048, n_ff=8192, architecture="lfm2", n_vocab=65536,
        extra={"lfm2.attention.head_count_kv": heads, "lfm2.shortconv.l_cache": 3},
    )  # fmt: skip
    found = plan(hybrid, computer(gpu(4)), Wishes(n_ctx=65536, n_gpu_layers=9))
    check(found)
    assert found.needs.flash_attention


def test_nothing_fits_anywhere() -> None:
    found = plan(DENSE, computer(gpu(2), ram_gib=3, free_gib=2))
    check(found)
    assert found.verdict == "too_large"
    assert 1 * GIB < found.missing_bytes < 5 * GIB
    assert any("missing" in text for text in found.reasons)


def test_ram_is_no_endless_store() -> None:
    """Half on the GPU is of no use where main memory cannot hold the other half."""
    small = plan(DENSE, computer(gpu(4), ram_gib=2, free_gib=0.7))
    assert small.verdict == "too_large" and small.missing_bytes > 0
    assert plan(DENSE, computer(gpu(4), ram_gib=16)).verdict == "split"


def test_a_smaller_quantization_is_offered_by_name() -> None:
    siblings = [Sibling("Q8_0", 8 * GIB), Sibling("Q4_K_S", int(4.3 * GIB)), Sibling("IQ3_M", int(3.5 * GIB))]
    siblings += [Sibling("Q2_K", 3 * GIB), Sibling("IQ2_M", int(2.7 * GIB))]
    found = plan(DENSE, computer(gpu(4.7)), siblings=siblings)
    assert found.verdict == "split" and found.better is not None and found.better.quantization == "IQ3_M"
    assert any("IQ3_M" in text and "some loss" in text for text in found.reasons)
    assert plan(DENSE, computer(gpu(2.5)), siblings=siblings).better is None, "below the floor nothing is offered"
    assert plan(DENSE, computer(gpu(24)), siblings=siblings).better is None


# ------------------------------------------------------------------ the user's choices


def test_choices_are_kept_and_checked() -> None:
    wishes = Wishes(n_ctx=16384, n_gpu_layers=33, kv_type_k="f16", kv_type_v="f16", n_ubatch=512, n_cpu_moe=0)
    found = plan(DENSE, computer(gpu(6)), wishes)
    check(found)
    assert found.verdict == "too_large"
    options = found.options
    assert (options.n_ctx, options.n_gpu_layers, options.kv_type_k, options.n_ubatch) == (16384, 33, "f16", 512)
    need = needs(DENSE, options, [gpu(6)]).devices[0].total_bytes
    assert abs(found.missing_bytes - (need + 150 * MIB - 6 * GIB)) < MIB
    assert plan(DENSE, computer(gpu(12)), wishes).verdict == "gpu"


def test_a_tight_choice_is_allowed_and_said() -> None:
    wishes = Wishes(n_ctx=8192, n_gpu_layers=33, kv_type_k="f16", kv_type_v="f16", n_ubatch=512)
    found = plan(DENSE, computer(gpu(room_for(DENSE, 300))), wishes)
    check(found)
    assert found.verdict == "gpu" and any("tight" in text for text in found.warnings)


@pytest.mark.parametrize("layers", [0, 1, 20, 33, 99, -1])
def test_wished_layers(layers: int) -> None:
    found = plan(DENSE, computer(gpu(24)), Wishes(n_gpu_layers=layers))
    assert found.options.n_gpu_layers == (33 if layers in (99, -1) else layers)
    assert found.verdict == {0: "cpu", 1: "split", 20: "split"}.get(layers, "gpu")


def test_a_split_is_kept() -> None:
    machine = computer(gpu(24, "CUDA0"), gpu(24, "CUDA1"))
    found = plan(DENSE, machine, Wishes(tensor_split=(3, 1)))
    assert found.options.tensor_split == (3, 1)
    first, second = (fit.need.weights_bytes for fit in found.devices)
    assert 2 < first / second < 4


def test_impossible_choices_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        plan(DENSE, computer(gpu(24)), Wishes(kv_type_k="q9_9", kv_type_v="q9_9"))


def test_a_load_that_llama_cpp_refuses() -> None:
    found = plan(DENSE, computer(gpu(24)), Wishes(kv_type_k="q8_0", kv_type_v="q8_0", flash_attention="off"))
    assert found.verdict == "unknown" and any("flash attention" in text for text in (*found.reasons, *found.warnings))


def test_excluded_devices_are_not_used() -> None:
    found = plan(DENSE, computer(gpu(24, "CUDA0"), gpu(24, "CUDA1")), Wishes(excluded=("CUDA0",)))
    assert found.use_devices == ("CUDA1",) and [fit.name for fit in found.devices] == ["CUDA1"]
    none = plan(DENSE, computer(gpu(24)), Wishes(excluded=("CUDA0", "CUDA7")))
    assert none.verdict == "cpu" and any("CUDA7" in text for text in none.reasons)


# ------------------------------------------------------------------ cases


def kv_of(header: GgufHeader, n_ctx: int) -> int:
    return (
        plan(header, computer(gpu(64)), Wishes(n_ctx=n_ctx, kv_type_k="f16", kv_type_v="f16")).devices[0].need.kv_bytes
    )


@pytest.mark.parametrize(
    ("n_layer", "heads"), [(16, [0, 0, 8, 0] * 4), (16, 8), (88, [8] * 88)], ids=["list", "scalar", "88 layers"]
)
def test_heads_as_number_or_list(n_layer: int, heads: int | list[int]) -> None:
    """B07: the cache is the sum over layers and grows in line with the context."""
    many = heads if isinstance(heads, list) else [heads] * n_layer
    value: Any = heads
    if isinstance(heads, list):
        value = GgufArray(4, n_layer, b"".join(n.to_bytes(4, "little") for n in heads))
    header = make_header(
        n_layer=n_layer,
        n_embd=1024,
        n_ff=2048,
        n_head=16,
        n_vocab=32000,
        extra={"llama.attention.head_count_kv": value},
    )
    for n_ctx in (1024, 2048, 32768):
        assert kv_of(header, n_ctx) == sum(n * 64 * 2 * 2 * n_ctx for n in many)


def test_the_trained_context_is_no_default() -> None:
    """B08: a million trained tokens on 8 GiB; the proposal fits, and four times the trained context warns."""
    header = make_header(n_ctx_train=1_048_576)
    found = plan(header, computer(gpu(8)))
    check(found)
    assert found.verdict == "gpu" and 4096 <= found.options.n_ctx <= 32768
    assert any(f"context of {found.needs.n_ctx} tokens costs" in text for text in found.reasons)
    small = make_header(n_ctx_train=2048)
    asked = plan(small, computer(gpu(24)), Wishes(n_ctx=8192))
    assert asked.options.n_ctx == 8192 and any("trained" in text for text in asked.warnings)
    assert not plan(small, computer(gpu(24))).warnings
    nothing = make_header(n_ctx_train=0)
    assert plan(nothing, computer(gpu(24))).options.n_ctx > 0


def test_the_integrated_device_is_no_second_card() -> None:
    """B34: shared memory is the host's, and a dedicated card comes first."""
    own, shared = gpu(8, "CUDA0"), gpu(15.9, "Vulkan0", kind="igpu", backend="Vulkan", shared=True)
    for devices in ((own, shared), (shared, own)):
        found = plan(make_header(n_layer=64), computer(*devices))
        assert found.use_devices == ("CUDA0",)
        assert sum(fit.free_bytes for fit in found.devices) == 8 * GIB, "never 23.9 GiB"
        assert any("Vulkan0" in text for text in found.reasons)


def test_a_display_card_is_left_alone_and_equal_cards_work_together() -> None:
    found = plan(DENSE, computer(gpu(4, "CUDA0"), gpu(24, "CUDA1")))
    assert found.use_devices == ("CUDA1",)
    both = plan(make_header(n_layer=64), computer(gpu(12, "CUDA0"), gpu(12, "CUDA1")))
    assert both.use_devices == ("CUDA0", "CUDA1") and both.verdict == "gpu"
    named = plan(DENSE, computer(gpu(4, "CUDA0"), gpu(24, "CUDA1")), Wishes(devices=("CUDA0", "CUDA1")))
    assert named.use_devices == ("CUDA0", "CUDA1")


def test_shared_memory_is_counted_once() -> None:
    device = gpu(20, "Vulkan0", kind="igpu", backend="Vulkan", shared=True)
    fits = plan(DENSE, computer(device, ram_gib=24, free_gib=20))
    assert fits.verdict == "gpu"
    tight = plan(DENSE, computer(device, ram_gib=24, free_gib=4))
    assert tight.verdict == "too_large", "the device says 20 GiB, but only 4 GiB of memory are free"


def test_a_device_without_figures_is_not_used() -> None:
    found = plan(DENSE, computer(gpu(0, "Vulkan0", backend="Vulkan")))
    assert found.verdict == "cpu" and any("does not say" in text for text in found.reasons)


def test_a_machine_without_gpu() -> None:
    found = plan(DENSE, computer(ram_gib=16))
    check(found)
    assert (found.verdict, found.options.n_gpu_layers, found.devices) == ("cpu", 0, ())
    wished = plan(DENSE, computer(ram_gib=16), Wishes(n_gpu_layers=20))
    assert wished.verdict == "cpu" and any("No GPU" in text for text in wished.warnings)


def test_a_tiny_card_leaves_the_settings_alone() -> None:
    found = plan(DENSE, computer(gpu(0.7), ram_gib=32))
    check(found)
    assert [(fit.name, fit.need.total_bytes) for fit in found.devices] == [("CUDA0", 0)] and found.use_devices == ()
    assert (found.verdict, found.options.kv_type_k, found.options.n_ubatch, found.options.n_ctx) == (
        "cpu", "f16", 512, 8192,
    )  # fmt: skip


def test_unlike_cards_given_by_name_are_filled_by_their_room() -> None:
    found = plan(
        make_header(n_layer=80, n_embd=8192, n_ff=28672, n_head=64),
        computer(gpu(48, "CUDA0"), gpu(2, "CUDA1"), ram_gib=128),
        Wishes(spread=True),
    )
    check(found)
    assert found.verdict == "gpu" and len(found.options.tensor_split) == 2


def test_an_unknown_architecture_is_said_to_be_unknown() -> None:
    found = plan(make_header(architecture="zzz9"), computer(gpu(24)))
    check(found)
    assert found.verdict == "unknown" and any("guess" in text for text in found.reasons)


def test_every_size_gives_a_plan() -> None:
    """Nothing negative and nothing endless, on any machine."""
    frees = (0, 0.1, 0.6, 1, 3, 5, 9, 300)
    for header, one, two in itertools.product((DENSE, EXPERTS), frees, (0.0, 2.0)):
        devices = [gpu(one, "CUDA0"), *([gpu(two, "CUDA1")] if two else [])]
        for ram in (0, 4, 64):
            machine = computer(*devices, ram_gib=ram)
            found = plan(header, machine, Wishes(spread=True))
            check(found)
            assert found.verdict == "too_large" or exceeds(found, header, machine) <= 0


# ------------------------------------------------------------------ the oracle


def test_a_probe_has_the_last_word() -> None:
    machine = computer(gpu(5.5))

    def ask(options: LoadOptions, devices: Any) -> Needs:
        found = needs(DENSE, options, devices)
        need = found.devices[0]
        more = DeviceNeed(need.name, need.weights_bytes, need.kv_bytes, need.compute_bytes + 200 * MIB)
        return replace(found, devices=(more,), source="probe")

    by_formula = plan(DENSE, machine, Wishes(n_ctx=8192, kv_type_k="f16", kv_type_v="f16", n_ubatch=512))
    probed = plan(DENSE, machine, Wishes(n_ctx=8192, kv_type_k="f16", kv_type_v="f16", n_ubatch=512), probe=ask)
    assert probed.source == "probe" and probed.options.n_gpu_layers < by_formula.options.n_gpu_layers
    check(probed)


def test_a_probe_that_fails_changes_nothing() -> None:
    def ask(options: LoadOptions, devices: Any) -> Needs:
        raise RuntimeError("the child died")

    assert plan(DENSE, computer(gpu(8)), probe=ask) == plan(DENSE, computer(gpu(8)))


def test_corrections_from_real_loads_take_room() -> None:
    free = room_for(DENSE, -100)
    assert plan(DENSE, computer(gpu(free)), Wishes(n_ctx=8192)).options.kv_type_k == "f16"
    found = plan(DENSE, computer(gpu(free)), Wishes(n_ctx=8192), corrections={"CUDA0": 300 * MIB})
    assert found.options.kv_type_k == "q8_0"
    assert found.devices[0].need.overhead_bytes == 450 * MIB


def test_other_quantizations_of_a_type_make_no_difference_to_the_rules() -> None:
    found = plan(make_header(kind=Q8_0), computer(gpu(24)))
    assert found.verdict == "gpu" and isinstance(found, FitPlan)
    assert isinstance(computer(), Machine) and WHOLE > 4 * GIB
