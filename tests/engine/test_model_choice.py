"""Which quantization is taken where the user names none."""

from __future__ import annotations

import pytest

from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine
from engine.model_choice import best_set
from engine.models import catalog
from engine.models.hub_names import HubFile, ModelSet, model_sets

GIB = 1 << 30
LABELS = ("IQ2_XXS", "Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")


def machine(ram_gib: float, gpu_gib: float = 0) -> Machine:
    gpu = DeviceSpec("CUDA0", "gpu", int(gpu_gib * GIB), int(gpu_gib * GIB), "CUDA")
    return Machine(
        devices=(gpu,) if gpu_gib else (),
        ram_available_bytes=int(ram_gib * GIB),
        ram_total_bytes=int(ram_gib * GIB),
        cores=8,
        bandwidths={},
    )


def sets_of(name: str) -> tuple[ModelSet, ...]:
    """A repository as publishers fill it, with sizes of the real thing."""
    model = catalog.load().find(name)
    assert model is not None
    files = []
    for label in LABELS:
        header = model.header(label)
        size = header.file_size if header else int(model.n_params * 2.2 / 8)
        files.append(HubFile(f"{name}-{label}.gguf", size))
    return model_sets(files)


@pytest.mark.parametrize(
    ("name", "ram", "gpu", "label"),
    [
        ("llama-3.1-8b", 32, 24, "Q6_K"),  # all of it on the GPU, and no more than can be told apart
        ("llama-3.1-8b", 32, 6, "Q4_K_M"),
        ("llama-3.1-8b", 32, 5, "Q4_K_M"),  # some layers on the processor cost less than a worse quantization
        ("llama-3.1-8b", 16, 0, "Q4_K_M"),  # on the processor the usual one: better ones are slower
        ("llama-3.1-8b", 5.4, 0, "Q3_K_M"),
        ("llama-3.3-70b", 64, 24, "Q4_K_M"),
        ("llama-3.3-70b", 16, 8, "Q4_K_M"),  # nothing fits: the usual one, and the verdict says so
        ("qwen3-0.6b", 16, 0, "Q8_0"),
        ("qwen3-0.6b", 16, 8, "Q8_0"),  # small models suffer more, and the best costs little
    ],
)
def test_the_choice(name: str, ram: float, gpu: float, label: str) -> None:
    model = catalog.load().find(name)
    assert model is not None
    found = best_set(sets_of(name), model.header(), machine(ram, gpu))
    assert found is not None
    assert found.label == label


def test_without_a_look_at_the_memory() -> None:
    sets = sets_of("llama-3.1-8b")
    assert best_set(sets, None, None) == next(item for item in sets if item.label == "Q4_K_M")
    rest = [item for item in sets if item.label in ("IQ2_XXS", "Q5_K_M", "F16")]
    found = best_set(rest, None, None)
    assert found is not None and found.label == "Q5_K_M"
    assert best_set([], None, None) is None


def test_incomplete_sets_are_never_taken() -> None:
    sets = model_sets([HubFile("m-Q4_K_M-00001-of-00002.gguf", 5), HubFile("m-Q2_K.gguf", 5)])
    found = best_set(sets, None, None)
    assert found is not None and found.label == "Q2_K"
