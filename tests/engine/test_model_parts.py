"""Parts of models and where they lie: sums are those of the placement rules, which are llama.cpp's own."""

from __future__ import annotations

import pytest
from fit_help import GIB, header, phantom

from engine.anatomy import (
    HOST,
    KINDS,
    Layout,
    anatomy,
    kind_of,
    loaded_layout,
    measured_weights,
    nominal_bits,
    planned_layout,
)
from engine.events import Device, ModelInfo, TemplateInfo
from engine.fit.needs import DeviceSpec
from engine.fit.placement import place, prepare, weights_by_device
from engine.fit.plan_records import Machine, Wishes
from engine.fit.planner import plan

#: their tensors are aligned as those in main memory are
DEVICES = [DeviceSpec(f"RPC{index}", "gpu", 80 * GIB, 80 * GIB, "RPC") for index in range(2)]


def layout_of(
    name: str, n_gpu_layers: int | None, n_cpu_moe: int = 0, shares: tuple[float, ...] = ()
) -> tuple[Layout, list[int]]:
    model = prepare(header(name))
    placed = place(len(model.shape.layers), n_gpu_layers, DEVICES, shares, n_cpu_moe)
    names = tuple(HOST if at < 0 else DEVICES[at].name for at in placed.devices)
    return Layout(names, placed.n_cpu_moe), weights_by_device(model, placed, DEVICES)


@pytest.mark.parametrize("name", list(phantom().MODELS))
def test_places_hold_what_the_rules_say(name: str) -> None:
    known = header(name)
    for n_gpu_layers, n_cpu_moe, shares in ((0, 0, ()), (None, 0, (1.0, 0.0)), (None, 3, (1.0, 2.0)), (9, 0, ())):
        layout, (*on_devices, on_host) = layout_of(name, n_gpu_layers, n_cpu_moe, shares)
        found = anatomy(known, layout, quantization="Q4_K_M")
        sums = {place.name: place.n_bytes for place in found.places}
        expected = {HOST: on_host, **{d.name: size for d, size in zip(DEVICES, on_devices, strict=True)}}
        for at, size in expected.items():
            # tensors are padded to 32 bytes each
            assert 0 <= size - sums.get(at, 0) <= 32 * len(known.tensors), (name, n_gpu_layers, at)
        assert next(place.name for place in found.places) == HOST
        assert sum(place.n_layers for place in found.places) == len(found.rows) - 1


@pytest.mark.parametrize("name", list(phantom().MODELS))
def test_every_number_is_counted_once_and_explained(name: str) -> None:
    known = header(name)
    layout, _ = layout_of(name, None, 2, (1.0, 1.0))
    found = anatomy(known, layout, quantization="Q4_K_M")
    assert found.n_bytes + found.not_loaded_bytes == sum(tensor.n_bytes for tensor in known.tensors)
    if not found.not_loaded_bytes:
        assert found.n_params == sum(tensor.n_elements for tensor in known.tensors)
    assert found.n_params == sum(p.n_params for row in found.rows for p in row.pieces if not p.copy)
    assert found.n_bytes == sum(p.n_bytes for row in found.rows for p in row.pieces if not p.copy)
    assert found.ideal_bytes == pytest.approx(found.n_params / 2, abs=1)
    assert found.ideal_bytes is not None and found.finer_bytes is not None
    assert found.ideal_bytes + found.scale_bytes + found.finer_bytes == found.n_bytes
    assert found.scale_bytes >= 0
    for row in found.rows:
        assert [p.kind for p in row.pieces] == sorted((p.kind for p in row.pieces), key=KINDS.index)
        for piece in row.pieces:
            assert piece.n_bytes == sum(share.n_bytes for share in piece.types) > 0
    rest = sum(p.n_bytes for row in found.rows for p in row.pieces if p.kind == "other")
    assert rest < 0.03 * found.n_bytes, "parts that nobody can name"


def test_experts_that_stay_behind_are_in_main_memory() -> None:
    layout, _ = layout_of("qwen3-30b-a3b", None, 5, (1.0, 0.0))
    found = anatomy(header("qwen3-30b-a3b"), layout)
    for row in found.rows[1:-1]:
        experts = [piece for piece in row.pieces if piece.kind == "experts"]
        assert [piece.place for piece in experts] == [HOST if row.layer < 5 else "RPC0"]
        assert {piece.place for piece in row.pieces if piece.kind != "experts"} == {"RPC0"}
    assert found.nominal_bits is None and found.ideal_bytes is None and found.finer_bytes is None


def test_an_output_without_numbers_of_its_own_is_a_copy_on_a_device() -> None:
    on_host = anatomy(header("llama-3.2-1b"), layout_of("llama-3.2-1b", 0)[0])
    assert on_host.tied and not any(piece.copy for row in on_host.rows for piece in row.pieces)
    on_gpu = anatomy(header("llama-3.2-1b"), layout_of("llama-3.2-1b", None, 0, (1.0, 0.0))[0])
    copies = [(row.name, p.place, p.n_bytes) for row in on_gpu.rows for p in row.pieces if p.copy]
    embedding = on_gpu.rows[0].pieces[0]
    assert ("output", "RPC0", embedding.n_bytes) in copies and embedding.place == HOST
    assert on_gpu.n_bytes == on_host.n_bytes, "a copy makes no larger model"
    assert sum(place.n_bytes for place in on_gpu.places) > on_gpu.n_bytes


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("Q4_K_M", 4), ("UD-Q4_K_XL", 4), ("Q8_0", 8), ("F16", 16), ("BF16", 16), ("F32", 32), ("IQ3_XXS", 3),
        ("MXFP4_MOE", 4), ("MXFP4", 4), ("NVFP4", 4), ("TQ2_0", 2), ("Q1_0", 1), ("Q6_K", 6), ("", None),
        ("type 250", None), ("other", None),
    ],
)  # fmt: skip
def test_bits_that_a_name_promises(name: str, bits: float | None) -> None:
    assert nominal_bits(name) == bits


def test_names_of_tensors_become_parts() -> None:
    assert kind_of("token_embd.weight") == "embedding" and kind_of("output.weight") == "output"
    assert kind_of("output_norm.weight") == "output" and kind_of("rope_freqs.weight") == "other"
    assert kind_of("blk.3.attn_q.weight") == "attention" == kind_of("blk.0.post_attention_norm.weight")
    assert kind_of("blk.3.ffn_gate_inp.weight") == "feed_forward" == kind_of("blk.3.ffn_down_shexp.weight")
    assert kind_of("blk.3.ffn_down_exps.weight") == "experts"
    assert kind_of("blk.3.ssm_in.weight") == "state"


def model_info(**values: object) -> ModelInfo:
    plain = {
        "path": "m.gguf",
        "name": "m",
        "architecture": "llama",
        "quantization": "Q4_1",
        "template": TemplateInfo("file"),
    }
    sizes = ("n_params", "size_bytes", "n_slots", "n_vocab", "n_embd", "n_batch", "n_ubatch", "n_threads")
    plain |= dict.fromkeys(sizes, 1) | {"n_ctx": 512, "n_ctx_train": 512, "n_layer": 2, "n_gpu_layers": 2}
    return ModelInfo(**{**plain, **values})  # type: ignore[arg-type]


def test_what_llama_said_is_taken_as_it_is() -> None:
    gpus = (Device("CPU", "x", "cpu", "CPU"), Device("RPC0", "127.0.0.1:5", "gpu", "RPC[127.0.0.1:5]"))
    info = model_info(
        devices=gpus,
        layer_devices=("CPU", "RPC0", "RPC0"),
        n_cpu_moe=1,
        buffers={
            "CPU_Mapped model": 10,
            "CPU_REPACK model": 5,
            "RPC0[127.0.0.1:5] model": 7,
            "CPU KV": 3,
            "CPU LoRA": 2,
        },
    )
    assert loaded_layout(info) == Layout((HOST, "RPC0", "RPC0"), 1)
    assert measured_weights(info) == {HOST: 15, "RPC0": 7}
    assert loaded_layout(model_info(devices=gpus)) is None, "nothing is made up where nothing was said"


def test_a_plan_is_laid_out_as_it_would_be_loaded() -> None:
    known = header("llama-3.1-8b")
    machine = Machine(tuple(DEVICES), 64 * GIB, 64 * GIB, 8)
    made = plan(known, machine, Wishes(n_ctx=4096, n_gpu_layers=10, tensor_split=(1.0, 1.0)))
    layout = planned_layout(made, machine.devices, 32)
    assert (
        layout.layers[:23] == (HOST,) * 23 and set(layout.layers[23:]) == {"RPC0", "RPC1"} and len(layout.layers) == 33
    )
    found = anatomy(known, layout)
    for fit in (*made.devices, made.host):
        sums = {place.name: place.n_bytes for place in found.places}
        assert sums[fit.name] == pytest.approx(fit.need.weights_bytes, rel=1e-3)
