"""Sizes of other quantizations of a model, against llama.cpp's own quantizer and against models made to be so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fit_help import header, phantom

from engine.errors import InvalidRequest
from engine.fit.needs import predict_quant
from engine.fit.quantize_rules import BASE_TYPES, tensor_types
from engine.models.gguf import read_header

_DRY = """
import ctypes, re, sys
import llama_cpp.llama_cpp as L
said = []
@L.llama_log_callback
def receive(level, text, data):
    said.append(text.decode("utf-8", "replace"))
L.llama_log_set(receive, ctypes.c_void_p(0))
L.llama_backend_init()
for ftype in map(int, sys.argv[2:]):
    options = L.llama_model_quantize_default_params()
    options.ftype, options.dry_run, options.allow_requantize = ftype, True, True
    said.clear()
    L.llama_model_quantize(sys.argv[1].encode(), b"unused.gguf", ctypes.byref(options))
    print(re.search(r"quant size\\s*=\\s*([\\d.]+) MiB", "".join(said))[1])
"""


@pytest.mark.parametrize("model", phantom().MODELS)
def test_types_of_every_tensor(model: str) -> None:
    made = phantom().MODELS[model][0](model)
    for label in phantom().FTYPE:
        expected = {n: kind for n, _, kind in phantom().quant_types(made, label)}
        found = {tensor.name: kind for tensor, kind in tensor_types(header(model), label)}
        assert found == expected, label


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "granite-4.0-h-tiny"])
def test_size_of_a_file_from_another_one_of_the_same_model(model: str) -> None:
    for label in ("Q8_0", "Q4_K_S", "Q2_K", "IQ4_XS"):
        real = header(model, label).file_size
        assert predict_quant(header(model), label) == pytest.approx(real, rel=0.005), label


def test_sizes_as_llama_cpps_own_quantizer_says_them(starter_model: Path) -> None:
    labels = {"Q8_0": 7, "Q4_K_M": 15, "Q4_0": 2, "Q6_K": 18, "Q3_K_M": 12, "Q5_K_S": 16}
    output = subprocess.run(
        [sys.executable, "-c", _DRY, str(starter_model), *map(str, labels.values())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    known = read_header(starter_model)
    for label, said in zip(labels, output, strict=True):
        tensors = float(said) * 1024 * 1024
        assert predict_quant(known, label) - known.data_offset == pytest.approx(tensors, rel=0.001), label


def test_every_known_quantization_and_no_other() -> None:
    sizes = {label: predict_quant(header("llama-3.1-8b"), label) for label in BASE_TYPES}
    assert (
        sizes["IQ1_S"]
        < sizes["IQ2_M"]
        < sizes["Q3_K_S"]
        < sizes["Q4_K_M"]
        < sizes["Q8_0"]
        < sizes["F16"]
        < sizes["F32"]
    )
    with pytest.raises(InvalidRequest):
        predict_quant(header("llama-3.1-8b"), "UD-Q4_K_XL")
