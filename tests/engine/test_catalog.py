"""The catalogue: sound by its schema, true where it can be checked, and good for judging models offline."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import msgspec
import pytest

import resources
from engine.fit.needs import LoadOptions, needs
from engine.models import catalog
from engine.models.catalog import Catalog, CatalogModel
from engine.models.catalog_shape import count_params, header_of
from engine.models.gguf_format import read_header
from engine.models.hub_names import quant_label

PHANTOM = Path(__file__).parents[1] / "phantom"


def models() -> tuple[CatalogModel, ...]:
    return catalog.load().models


def test_the_schema_beside_it_is_its_own() -> None:
    assert json.loads(resources.text("catalog/schema.json")) == json.loads(json.dumps(msgspec.json.schema(Catalog)))


def test_it_is_worth_looking_at() -> None:
    found = models()
    assert 40 <= len(found) <= 60
    for purpose in ("chat", "code", "reasoning", "multilingual", "small", "vision"):
        assert len(catalog.load().search(purpose=purpose)) >= 4, purpose
    assert len({model.maker for model in found}) >= 8
    sizes = sorted(model.size_bytes() for model in found)
    assert sizes[0] < 200e6 and sizes[-1] > 100e9
    assert sum(size < 6e9 for size in sizes) >= 20, "most people have 8 GB of graphics memory or less"
    assert sum(model.open_licence for model in found) >= 25
    assert all(catalog.load().about)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.id)
def test_each_model(model: CatalogModel) -> None:
    assert model.summary.endswith(".") and "!" not in model.summary and len(model.summary) < 120
    assert (model.licence in ("apache-2.0", "mit")) == model.open_licence
    assert model.repo not in model.mirrors
    for label in model.quants:
        assert quant_label(f"model-{label}.gguf") == label
        assert model.size_bytes(label) > 0
    sizes = [model.size_bytes(label) for label in model.quants]
    assert sizes == sorted(sizes), "small to large"
    bits = model.size_bytes() * 8 / model.n_params
    assert 3.5 < bits < 9.5, f"{bits:.1f} bits per weight"
    assert model.n_ctx_train % 1000 == 0 or model.n_ctx_train % 1024 == 0
    assert "2023-01" < model.released <= "2026-11"
    if model.shape is None:
        assert "sizes" in model.approximate and model.estimated


def test_the_fit_judges_all_of_it_offline() -> None:
    options = LoadOptions(n_ctx=8192, n_gpu_layers=0)
    for model in models():
        header = model.header()
        assert header is not None
        found = needs(header, options, [])
        assert not found.unknown, (model.id, found.unknown)
        assert found.host.weights_bytes == pytest.approx(model.size_bytes(), rel=0.03), model.id
        assert found.host.kv_bytes > 0
        if model.kv_bytes_per_token:
            assert found.host.kv_bytes == pytest.approx(model.kv_bytes_per_token * 8192, rel=0.5), model.id
    begin = time.monotonic()
    for model in models():
        model.header()
    assert time.monotonic() - begin < 2


#: sizes of published files in bytes (llama.cpp's own quantization without an importance matrix)
PUBLISHED = {
    ("llama-3.1-8b", "Q4_K_M"): 4_920_734_272,
    ("qwen3-8b", "Q4_K_M"): 5_027_783_488,
    ("llama-3.3-70b", "Q4_K_M"): 42_520_395_584,
    ("gpt-oss-20b", "MXFP4"): 12_109_566_560,
}


@pytest.mark.parametrize(("name", "label"), PUBLISHED)
def test_sizes_from_shapes_are_those_of_real_files(name: str, label: str) -> None:
    model = catalog.load().find(name)
    assert model is not None
    assert model.size_bytes(label) == pytest.approx(PUBLISHED[name, label], rel=0.005)


TWINS = {
    "llama-3.1-8b": "llama-3.1-8b",
    "llama-3.2-1b": "llama-3.2-1b",
    "qwen3-30b-a3b": "qwen3-30b-a3b-2507",
    "gemma-3-12b": "gemma-3-12b",
    "phi-4": "phi-4",
    "gpt-oss-20b": "gpt-oss-20b",
}


@pytest.mark.parametrize(("phantom_name", "name"), TWINS.items())
@pytest.mark.parametrize("label", ["Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_XS"])
def test_shapes_agree_with_files_of_the_same_shape(tmp_path: Path, phantom_name: str, name: str, label: str) -> None:
    """The phantoms' tensor types were checked against llama.cpp's own quantizer."""
    if str(PHANTOM) not in sys.path:
        sys.path.insert(0, str(PHANTOM))
    from phantom import build

    label = "MXFP4_MOE" if name.startswith("gpt-oss") else label
    build(phantom_name, tmp_path / "x.gguf", label)
    real = read_header(tmp_path / "x.gguf", max_array=1 << 20)
    model = catalog.load().find(name)
    assert model is not None and model.shape is not None
    made = header_of(model.shape, label, model.name, model.n_ctx_train)
    assert count_params(model.shape) == pytest.approx(sum(t.n_elements for t in real.tensors), rel=1e-5)
    assert {t.name: t.dims for t in made.tensors}.items() <= {t.name: t.dims for t in real.tensors}.items()
    # the first layers' small tables (rope factors) are all that may be missing
    for options in (LoadOptions(n_ctx=4096, n_gpu_layers=0), LoadOptions(n_ctx=32768, n_gpu_layers=0)):
        ours, theirs = needs(made, options, []).host, needs(real, options, []).host
        assert ours.weights_bytes == pytest.approx(theirs.weights_bytes, rel=0.02)
        assert ours.kv_bytes == theirs.kv_bytes
        assert ours.compute_bytes == pytest.approx(theirs.compute_bytes, rel=0.02)


def test_finding() -> None:
    found = catalog.load()
    assert found.find("Qwen3-8B") is found.find("qwen/qwen3-8b-gguf") is found.find("unsloth/Qwen3-8B-GGUF")
    assert found.find("nothing") is None
    assert [model.id for model in found.search("gemma 12b")] == ["gemma-3-12b", "gemma-4-12b"]
    assert all("code" in model.purposes for model in found.search("", "code"))


def test_a_header_of_an_unknown_quantization() -> None:
    model = models()[0]
    assert model.header("Q99_Z") is None
    assert model.size_bytes("Q99_Z") == 0


GOOD = {
    "id": "m",
    "name": "M",
    "maker": "X",
    "summary": "S.",
    "purposes": ["chat"],
    "licence": "mit",
    "open_licence": True,
    "repo": "a/b",
    "n_params": 1000,
    "n_ctx_train": 1024,
    "released": "2025-01",
    "sizes": {"Q4_K_M": 1},
}

LLAMA = {"architecture": "llama"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"id": "Bad Id"}, "id"),
        ({"repo": "https://x/y"}, "repository"),
        ({"repo": "../b"}, "repository"),
        ({"released": "soon"}, "released"),
        ({"purposes": []}, "purpose"),
        ({"purposes": ["fun"]}, "fun"),
        ({"quant": "Q1"}, "quantization"),
        ({"n_params": 0}, "parameters"),
        ({"n_active": 2000}, "parameters"),
        ({"approximate": ["colour"]}, "approximate"),
        ({"sizes": {}}, "size"),
        ({"colour": "red"}, "colour"),
        (
            {
                "shape": {
                    "architecture": "llama",
                    "layers": 1,
                    "width": 8,
                    "ff": 8,
                    "heads": 1,
                    "kv_heads": 1,
                    "vocab": 9,
                }
            },
            "parameters",
        ),
    ],
)
def test_what_breaks_the_schema_is_said(change: dict[str, object], words: str) -> None:
    data = {"schema": 1, "updated": "2026-11-29", "about": ["x"], "models": [{**GOOD, **change}]}
    if not words:
        assert catalog.parse(json.dumps(data).encode()).models[0].id == "m"
        data["models"] = [GOOD, GOOD]
        words = "twice"
    with pytest.raises(ValueError, match=words):
        catalog.parse(json.dumps(data).encode())
