"""The table of tensor types against the gguf package, and the labels of whole files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from gguf.constants import GGMLQuantizationType, LlamaFileType
from test_gguf_agrees import ggml_library

from engine.models import quant

CHILD = """
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
lib.ggml_type_name.restype = ctypes.c_char_p
lib.ggml_type_size.restype = ctypes.c_size_t
lib.ggml_blck_size.restype = ctypes.c_int64
found = {}
for number in range(int(sys.argv[2])):
    size, block = lib.ggml_type_size(number), lib.ggml_blck_size(number)
    if size and block:
        found[number] = (lib.ggml_type_name(number).decode().upper(), block, size)
print(json.dumps(found))
"""


def test_tensor_types_equal_the_library() -> None:
    """ggml itself is asked, not the gguf package: that one has a wrong size for Q8_1."""
    count = max(map(int, GGMLQuantizationType)) + 1  # ggml aborts on numbers beyond its table
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(ggml_library()), str(count)], capture_output=True, check=True, timeout=60
    )
    theirs = {int(number): tuple(layout) for number, layout in json.loads(done.stdout).items()}
    assert {number: tuple(layout) for number, layout in quant.TENSOR_TYPES.items()} == theirs


def test_file_types_equal_the_reference() -> None:
    prefix = ("MOSTLY_", "ALL_")
    theirs = {
        int(kind): kind.name.removeprefix(prefix[0]).removeprefix(prefix[1])
        for kind in LlamaFileType
        if kind is not LlamaFileType.GUESSED
    }
    assert dict(quant.FILE_TYPES) == theirs


@pytest.mark.parametrize(
    ("file_type", "by_type", "label"),
    [
        (15, {12: 10, 14: 90}, "Q4_K_M"),
        (15 + quant.FILE_TYPE_GUESSED, {12: 10}, "Q4_K_M"),
        (None, {12: 100, 14: 40, 0: 1}, "Q4_K"),
        (999, {8: 100}, "Q8_0"),
        (True, {8: 100}, "Q8_0"),
        ("15", {3: 5, 0: 1}, "Q4_1"),
        (None, {}, ""),
    ],
)
def test_label_of_a_file(file_type: object, by_type: dict[int, int], label: str) -> None:
    assert quant.file_label(file_type, by_type) == label


def test_sizes_and_names() -> None:
    assert quant.tensor_bytes(12, 256 * 10) == 1440
    assert quant.tensor_bytes(3, 576 * 49152) == 576 * 49152 // 32 * 20
    assert quant.tensor_type_name(31) == "Q4_0_4_4"
    assert quant.tensor_type_name(250) == "type 250"
    with pytest.raises(KeyError):
        quant.tensor_bytes(250, 1)
