"""The 708 texts of llama.cpp's own tokenizer tests, with their expected ids, through the library we ship."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_vocab import RealVocab, unpack_vocabularies

from engine.worker.text import Utf8Stream

NAMES = [
    "bert-bge",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
]
N_TEXTS = 708


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_vocabularies(tmp_path_factory.mktemp("vocab"))


def rows(folder: Path, name: str) -> list[tuple[str, list[int]]]:
    stem = folder / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{stem}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    ids = Path(f"{stem}.out").read_text().split("\n")
    return [(text, [int(n) for n in line.split()]) for text, line in zip(texts, ids, strict=False)]


def test_all_texts_are_there(folder: Path) -> None:
    assert sum(len(rows(folder, name)) for name in NAMES) == N_TEXTS


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_the_way_back(name: str, folder: Path) -> None:
    vocab = RealVocab(folder / f"ggml-vocab-{name}.gguf")
    for text, expected in rows(folder, name):
        tokens = vocab.tokenize(text, add_special=False, parse_special=False)
        assert tokens == expected, text
        pieces = [vocab.piece(token) for token in tokens]
        whole = b"".join(pieces)
        stream = Utf8Stream()
        streamed = "".join(map(stream.feed, pieces)) + stream.flush()
        assert streamed == whole.decode("utf-8", "replace"), text
        if name != "bert-bge":  # its vocabulary folds case and accents
            # SentencePiece puts one space before a text
            assert streamed in (text, " " + text), text
