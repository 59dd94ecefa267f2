"""Real vocabularies of llama.cpp's own tests, loaded through llama.cpp, as `engine.worker.prompt` wants them."""

from __future__ import annotations

import ctypes
import json
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as _llama

DATA = Path(__file__).resolve().parent.parent / "data" / "llama_cpp"
L: Any = _llama
#: llama.h, LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_CONTROL
NEEDS_PARSING = 1 | 8
USER_DEFINED = 16


@L.llama_log_callback
def _silent(_level: int, _text: bytes, _data: Any) -> None:
    """Kept for the whole process: llama.cpp keeps its address."""


class RealVocab:
    """A vocabulary-only model. Never freed: there are a few, and tests share them."""

    def __init__(self, path: Path) -> None:
        L.llama_log_set(_silent, ctypes.c_void_p(0))
        params = L.llama_model_default_params()
        params.vocab_only = True
        self.name = path.stem.removeprefix("ggml-vocab-")
        self._model = L.llama_model_load_from_file(str(path).encode(), params)
        assert self._model, path
        self._vocab = L.llama_model_get_vocab(self._model)
        self.n_tokens: int = L.llama_vocab_n_tokens(self._vocab)
        self.control = {
            token: self.token_text(token)
            for token in range(self.n_tokens)
            if L.llama_vocab_get_attr(self._vocab, token) & NEEDS_PARSING
        }
        self.user_defined = {
            token: self.token_text(token)
            for token in range(self.n_tokens)
            if L.llama_vocab_get_attr(self._vocab, token) & USER_DEFINED
        }
        self.user_defined_texts = list(self.user_defined.values())
        self.control_texts = list(self.control.values())
        self.adds_bos = bool(L.llama_vocab_get_add_bos(self._vocab))
        self.bos_token: int = L.llama_vocab_bos(self._vocab)
        self.bos_text = self.token_text(self.bos_token) if self.bos_token >= 0 else ""
        eos = L.llama_vocab_eos(self._vocab)
        self.eos_text = self.token_text(eos) if eos >= 0 else ""

    def token_text(self, token: int) -> str:
        text: bytes = L.llama_vocab_get_text(self._vocab, token)
        return text.decode("utf-8", "replace")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        n = L.llama_tokenize(self._vocab, data, len(data), tokens, room, add_special, parse_special)
        assert n >= 0
        return list(tokens[:n])

    def piece(self, token: int, special: bool = False) -> bytes:
        buffer = ctypes.create_string_buffer(512)
        n = L.llama_token_to_piece(self._vocab, token, buffer, 512, 0, special)
        assert n >= 0
        return buffer.raw[:n]

    def detokenize(self, tokens: list[int]) -> bytes:
        array = (ctypes.c_int32 * max(1, len(tokens)))(*tokens)
        buffer = ctypes.create_string_buffer(65536)
        n = L.llama_detokenize(self._vocab, array, len(tokens), buffer, 65536, False, True)
        assert n >= 0
        return buffer.raw[:n]


@lru_cache(maxsize=1)
def templates() -> dict[str, str]:
    """The 70 chat templates of llama.cpp's test data, by file name without its ending."""
    with tarfile.open(DATA / "templates.tar.xz") as archive:
        return {
            member.name.removesuffix(".jinja"): archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive
        }


def cases(name: str) -> list[dict[str, str]]:
    loaded: list[dict[str, str]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return loaded


def unpack_vocabularies(folder: Path) -> Path:
    """The folder with the vocabulary files, unpacked once; takes about 2 s."""
    done = folder / "done"
    if not done.exists():
        with tarfile.open(DATA / "vocab.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        done.touch()
    return folder
