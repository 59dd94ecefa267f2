"""Compute buffers by formula: never too low, and not much too high, with the application's own settings."""

from __future__ import annotations

from dataclasses import replace

from fit_help import GIB, MIB, devices, header, name, options, own_setting, pairs, phantom, rows

from engine.fit.needs import DeviceSpec, LoadOptions, needs

ONE = [DeviceSpec("CUDA0", "gpu", 80 * GIB, 80 * GIB)]


def compute(model: str, **wishes: object) -> int:
    return needs(header(model), LoadOptions(**wishes), ONE).devices[0].compute_bytes  # type: ignore[arg-type]


def test_never_below_and_at_most_15_percent_and_32_mib_above() -> None:
    wrong, count = [], 0
    for row in filter(own_setting, rows()):
        answer = needs(header(row["model"]), options(row), devices(row))
        for device, ours, theirs in pairs(row, answer):
            count += 1
            if not theirs["compute"] <= ours.compute_bytes <= theirs["compute"] * 1.15 + 32 * MIB:
                wrong.append(
                    f"{name(row)} {device}: {ours.compute_bytes / MIB:.1f} for {theirs['compute'] / MIB:.1f} MiB"
                )
    assert not wrong, wrong
    assert count == 32


def test_never_below_whatever_the_settings() -> None:
    """Also with logits of all tokens, two devices, remote ones, and without flash attention; there it may be higher."""
    low = []
    for row in rows():
        answer = needs(header(row["model"]), options(row), devices(row))
        for device, ours, theirs in pairs(row, answer):
            if ours.compute_bytes < theirs["compute"]:
                low.append(
                    f"{name(row)} {device}: {ours.compute_bytes / MIB:.1f} for {theirs['compute'] / MIB:.1f} MiB"
                )
    assert not low, low[:10]


def test_usual_models_on_one_device_are_met_within_a_mebibyte() -> None:
    for model in ("llama-3.1-8b", "llama-3.2-1b", "qwen2.5-7b", "gemma-3-12b", "qwen3-30b-a3b"):
        row = next(r for r in filter(own_setting, rows()) if r["model"] == model and not r["args"]["n_cpu_moe"])
        ours = needs(header(model), options(row), devices(row)).devices[0].compute_bytes
        assert 0 <= ours - row["devices"][0]["compute"] < MIB


def test_what_it_grows_with() -> None:
    usual = compute("llama-3.1-8b", n_ctx=8192)
    assert usual < compute("llama-3.1-8b", n_ctx=32768) < usual + 25 * MIB  # the mask
    assert compute("llama-3.1-8b", n_ctx=8192, n_ubatch=256) < 0.6 * usual
    assert compute("llama-3.1-8b", n_ctx=8192, n_outputs=0) > usual + 128 * MIB  # logits of every token
    assert compute("llama-3.1-8b", n_ctx=32768, flash_attention="off") > 2048 * MIB  # the whole matrix
    assert compute("qwen3-30b-a3b", n_ctx=8192, n_cpu_moe=10) > compute("qwen3-30b-a3b", n_ctx=8192) + 100 * MIB


def test_a_device_without_layers_still_works_for_the_host() -> None:
    assert compute("llama-3.1-8b", n_ctx=8192, n_gpu_layers=0) > 50 * MIB
    assert compute("llama-3.1-8b", n_ctx=8192, n_gpu_layers=0, op_offload=False) == 0
    remote = replace(ONE[0], backend="RPC")
    answer = needs(header("llama-3.1-8b"), LoadOptions(n_ctx=8192, n_gpu_layers=0), [remote])
    assert answer.devices[0].compute_bytes == 0 and answer.host.compute_bytes > 100 * MIB


def test_devices_in_turn_hold_their_inputs_four_times() -> None:
    two = [replace(ONE[0], name=f"CUDA{i}") for i in range(2)]
    options_ = LoadOptions(n_ctx=32768, tensor_split=(1, 1))
    first, _ = needs(header("llama-3.1-8b"), options_, two).devices
    assert first.compute_bytes > compute("llama-3.1-8b", n_ctx=32768) + 3 * 32 * MIB
    partly, _ = needs(header("llama-3.1-8b"), replace(options_, n_gpu_layers=20), two).devices
    assert needs(header("llama-3.1-8b"), replace(options_, n_cpu_moe=1), two).devices[0] != first
    assert partly.weights_bytes < first.weights_bytes


def test_flash_attention_where_a_head_is_too_odd_for_it() -> None:
    on, off = LoadOptions(n_ctx=8192), LoadOptions(n_ctx=8192, flash_attention="off")
    for model in phantom().MODELS:
        assert needs(header(model), on, ONE).flash_attention
        assert not needs(header(model), off, ONE).flash_attention
