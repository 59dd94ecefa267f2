"""llama.cpp's own dry run through a child process: its figures, its deaths, its delays."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fit_help import GIB, MIB, build, devices, header, name, options, own_setting, pairs, phantom, rows

from engine.fit import probe as probes
from engine.fit.needs import DeviceSpec, LoadOptions, Needs, needs
from engine.fit.probe import Prober
from engine.models.gguf import check_file

ONE = [DeviceSpec("CUDA0", "gpu", 8 * GIB, 8 * GIB)]
#: the log's sizes have two places
ROUNDING = 0.01 * MIB


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    made = Prober()
    yield made
    made.close()


def sample() -> list[object]:
    """All rows with the application's own settings, and some of every other sort."""
    return [row for i, row in enumerate(rows()) if own_setting(row) or i % 23 == 0]


@pytest.mark.parametrize("row", sample(), ids=name)  # type: ignore[arg-type]
def test_equals_llama_cpps_own_measurement(row: dict[str, object], prober: Prober) -> None:
    """For GPUs that are not there, NVIDIA-like and remote, one and two, whole and in part."""
    answer = prober.probe(header(str(row["model"])), options(row), devices(row))
    assert answer.source == "probe" and not answer.unknown
    for device, ours, theirs in pairs(row, answer):
        assert (ours.weights_bytes, ours.kv_bytes) == (theirs["model"], theirs["context"]), device
        assert abs(ours.compute_bytes - theirs["compute"]) <= ROUNDING, device


def test_formulas_and_dry_run_on_described_machines(prober: Prober) -> None:
    """One to three devices of 2 to 48 GiB: weights and caches equal, compute from above but for a trace."""
    dice = random.Random(20261129)
    differ, low = [], []
    for _ in range(30):
        model = dice.choice(list(phantom().MODELS))
        known = header(model)
        n_layer = known.of_architecture("block_count") or 0
        kv_type = dice.choice(["f16", "f16", "q8_0"])
        wishes = LoadOptions(
            n_ctx=dice.choice([2048, 4096, 8192, 16384]),
            n_gpu_layers=dice.choice([-1, dice.randint(1, n_layer)]),
            n_slots=dice.choice([1, 4]),
            n_ubatch=dice.choice([256, 512]),
            kv_type_k=kv_type,
            kv_type_v=kv_type,
            n_cpu_moe=dice.choice([0, dice.randint(1, n_layer)]) if known.of_architecture("expert_count") else 0,
        )
        sizes = [dice.randint(2, 48) * GIB for _ in range(dice.randint(1, 3))]
        machine = [DeviceSpec(f"CUDA{i}", "gpu", size, size) for i, size in enumerate(sizes)]
        formula, asked = needs(known, wishes, machine), prober.probe(known, wishes, machine)
        assert asked.source == "probe", asked.unknown
        for ours, theirs in zip((*formula.devices, formula.host), (*asked.devices, asked.host), strict=True):
            if (ours.weights_bytes, ours.kv_bytes) != (theirs.weights_bytes, theirs.kv_bytes):
                differ.append((model, wishes, ours, theirs))
            if ours.compute_bytes < theirs.compute_bytes * 0.98 and not formula.unknown:
                low.append((model, wishes, ours, theirs))
    assert not differ and not low, (differ[:3], low[:3])


def test_a_file_and_its_header_have_one_answer(starter_model: Path, prober: Prober) -> None:
    known = check_file(starter_model)
    for layers in (-1, 10, 0):
        wishes = LoadOptions(n_ctx=2048, n_gpu_layers=layers, n_slots=4)
        answer = prober.probe(starter_model, wishes, ONE)
        assert answer == prober.probe(known, wishes, ONE)
        formula = needs(known, wishes, ONE)
        assert [n.weights_bytes for n in answer.devices] == [n.weights_bytes for n in formula.devices]
        assert answer.n_gpu_layers == formula.n_gpu_layers == (31 if layers < 0 else layers)


def test_without_devices_all_is_on_the_host(starter_model: Path, prober: Prober) -> None:
    answer = prober.probe(starter_model, LoadOptions(n_ctx=2048), [])
    assert answer.devices == () and answer.source == "probe" and answer.n_gpu_layers == 0
    assert answer.host.kv_bytes == 45 * MIB and answer.host.compute_bytes > 0 and answer.host.overhead_bytes > 0


def test_the_second_question_is_answered_from_memory(starter_model: Path, prober: Prober) -> None:
    wishes = LoadOptions(n_ctx=1280)
    first = prober.probe(starter_model, wishes, ONE)
    child, asked = prober._child, prober._number
    assert prober.probe(starter_model, wishes, ONE) == first
    assert prober._number == asked
    prober.probe(starter_model, replace(wishes, n_ctx=1536), ONE)
    assert prober._child is child  # one child for all of them


def test_an_architecture_that_llama_cpp_does_not_know(prober: Prober) -> None:
    known = header("llama-3.2-1b")
    metadata = {k.replace("llama.", "zzz9."): v for k, v in known.metadata.items()}
    kinds = {k.replace("llama.", "zzz9."): v for k, v in known.value_types.items()}
    strange = msgspec.structs.replace(known, metadata={**metadata, "general.architecture": "zzz9"}, value_types=kinds)
    answer = prober.probe(strange, LoadOptions(), ONE)
    assert answer.source == "formula" and any("does not take this model" in reason for reason in answer.unknown)
    assert any("zzz9" in reason for reason in answer.unknown)
    assert prober.probe(known, LoadOptions(), ONE).source == "probe"  # the child lives


def test_settings_that_llama_cpp_refuses(prober: Prober) -> None:
    wishes = LoadOptions(n_ctx=1024, kv_type_k="q8_0", flash_attention="off")
    answer = prober.probe(header("deepseek-v2-lite"), wishes, ONE)
    assert answer.source == "formula" and any("does not take these settings" in r for r in answer.unknown)


# ------------------------------------------------------------------ children that go wrong

_CHILD = """
import os, sys, time
print('{{"llama_cpp":"scripted"}}', flush=True)
for line in sys.stdin:
    {on_question}
"""


def scripted(on_question: str, **more: float) -> Prober:
    return Prober(command=[sys.executable, "-c", _CHILD.format(on_question=on_question)], **more)  # type: ignore[arg-type]


def refused(made: Prober) -> Needs:
    began = time.monotonic()
    try:
        answer = made.probe(header("llama-3.2-1b"), LoadOptions(), ONE)
    finally:
        made.close()
    assert time.monotonic() - began < 15
    formula = needs(header("llama-3.2-1b"), LoadOptions(), ONE)
    assert answer.source == "formula" and answer.devices == formula.devices and answer.unknown
    return answer


@pytest.mark.parametrize(
    ("on_question", "words"),
    [
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("sys.exit(7)", "7"),
        ("print('no json', flush=True)", "failed"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals have other names there")
def test_a_death_is_unknown_with_words(on_question: str, words: str) -> None:
    assert words in refused(scripted(on_question)).unknown[-1]


def test_a_child_that_hangs_is_ended() -> None:
    answer = refused(scripted("time.sleep(60)", answer_s=0.3))
    assert "within 0.3 s" in answer.unknown[-1]


def test_a_child_that_cannot_start() -> None:
    assert "cannot be asked" in refused(Prober(command=[sys.executable, "-c", "raise SystemExit(3)"])).unknown[-1]
    assert "failed" in refused(Prober(command=["there-is-no-such-program"])).unknown[-1]


def test_an_assertion_of_llama_cpp_ends_only_the_child(prober: Prober, tmp_path: Path) -> None:
    """Fewer outputs than sequences fails a check inside llama.cpp."""
    bad = LoadOptions(n_ctx=1024, n_slots=4, n_outputs=1)
    answer = prober.probe(header("llama-3.2-1b"), bad, ONE)
    assert answer.source == "formula" and "died" in answer.unknown[-1]
    assert prober.probe(header("llama-3.2-1b"), replace(bad, n_outputs=None), ONE).source == "probe"


def test_an_idle_child_ends_by_itself(starter_model: Path) -> None:
    made = Prober(idle_s=0.2)
    made.probe(starter_model, LoadOptions(n_ctx=512), ONE)
    deadline = time.monotonic() + 10
    while made._child is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert made._child is None
    assert made.probe(starter_model, LoadOptions(n_ctx=768), ONE).source == "probe"
    made.close()
    made.close()


def test_the_shared_prober(tmp_path: Path) -> None:
    path = build("llama-3.2-1b", tmp_path / "model.gguf")
    try:
        assert probes.probe(path, LoadOptions(n_ctx=512), ONE).source == "probe"
    finally:
        probes.close()
