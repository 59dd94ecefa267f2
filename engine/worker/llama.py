"""The low-level C API of llama.cpp behind a small class: one model, one context, its vocabulary.

Everything here runs on the thread that owns the model, except `Interrupt.set`. Nothing of the high-level Python
class of llama-cpp-python is used: it copies logits and hides the abort and progress callbacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import llama_cpp.llama_cpp as _llama
import numpy as np

from engine.errors import Cancelled, UnsupportedModel
from engine.worker import native_log
from engine.worker.adapters import Adapters, read_adapters, warm_up
from engine.worker.kv_cache import KvCache
from engine.worker.load_options import kv_type as kv_type
from engine.worker.load_options import load_weights, make_context
from engine.worker.probability import Probability
from engine.worker.protocol import Load
from engine.worker.sampling_chain import SamplerChain
from engine.worker.tracer import Distribution, Raw
from engine.worker.vocabulary import Vocabulary

_L: Any = _llama
ALLOW_AMX_VARIABLE = "INGLENOOK_ALLOW_AMX"
DECODE_OK, DECODE_NO_ROOM, DECODE_ABORTED = 0, 1, 2


#: as llama_cpp has it, but giving a plain address, which is much quicker
_logits_at = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(("llama_get_logits_ith", _L._lib))


class Interrupt:
    """A flag that makes a running `llama_decode` return early.

    llama.cpp asks its abort callback before every node of the graph, about a thousand times a token. A Python
    function would cost more than a tenth of the speed, so the callback is the C library's `strlen` on this two-byte
    buffer: an empty text means 0, go on; a text of one byte means 1, stop.
    """

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)
        self._lock = threading.Lock()
        self._held = self._asked = False
        library = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
        address = ctypes.cast(library.strlen, ctypes.c_void_p).value
        self.callback = _L.ggml_abort_callback(address)
        self.data = ctypes.addressof(self._flag)

    def set(self) -> None:
        with self._lock:
            self._asked = True
            if not self._held:
                self._flag[0] = b"\x01"

    def clear(self) -> bool:
        """Whether it was set. What sets it from now on stays."""
        if not self._asked:  # the usual case, before every step
            return False
        with self._lock:
            self._asked = False
            self._flag[0] = b"\x00"
        return True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What is computed inside is not disturbed; what comes after it is."""
        with self._lock:
            self._held = True
            self._flag[0] = b"\x00"
        try:
            yield
        finally:
            with self._lock:
                self._held = False
                self._flag[0] = b"\x01" if self._asked else b"\x00"

    def is_set(self) -> bool:
        return self._flag[0] != b"\x00"


def version() -> str:
    """Version of the llama.cpp build, with that of the Python package that ships it."""
    import llama_cpp

    return f"{_L.llama_version().decode()} (llama-cpp-python {llama_cpp.__version__})"


def system_info() -> str:
    info: bytes = _L.llama_print_system_info()
    return info.decode("utf-8", "replace").strip()


class Library:
    """llama.cpp itself: log callback and start-up. Made once per process, before anything else."""

    def __init__(self, log: native_log.NativeLog) -> None:
        self.log = log

        @_L.llama_log_callback  # type: ignore[untyped-decorator]
        def receive(level: int, text: bytes | None, _data: Any) -> None:
            if text:
                log.add(level, text.decode("utf-8", "replace"))

        self._receive = receive  # llama.cpp keeps the address: it must live as long as the process
        _L.llama_log_set(receive, ctypes.c_void_p(0))
        _L.llama_backend_init()


class LlamaModel:
    """A loaded model with its context. `close` frees both.

    Attributes:
        lines: all that llama.cpp logged during the load.
        n_ctx: tokens the context really holds (llama.cpp rounds up to a multiple of 256).
        vocab, cache: its vocabulary, and the memory of its context.
        adapters: LoRA adapters in the context.
    """

    def __init__(self, model: Any, context: Any, lines: list[str], adapters: Adapters) -> None:
        self._model, self.context, self.lines, self.adapters = model, context, lines, adapters
        self.vocab = Vocabulary(model)
        self.cache = KvCache(model, context, architecture=self.metadata("general.architecture"))
        self.n_ctx: int = _L.llama_n_ctx(context)
        self.n_batch: int = _L.llama_n_batch(context)
        self.n_ubatch: int = _L.llama_n_ubatch(context)
        self.n_slots: int = _L.llama_n_seq_max(context)
        self.n_threads: int = _L.llama_n_threads(context)
        self.n_threads_batch: int = _L.llama_n_threads_batch(context)
        self._batch = _L.llama_batch_init(self.n_batch, 0, 1)
        batch = self._batch  # its lists, which ctypes would look up again at every step
        self._lists = (batch.token, batch.pos, batch.n_seq_id, batch.seq_id, batch.logits)
        self._probability = Probability(self.vocab.n_tokens)
        self._distribution: Distribution | None = None

    # ------------------------------------------------------------------ loading

    @classmethod
    def load(
        cls,
        request: Load,
        *,
        n_ctx: Callable[[int], int],
        n_gpu_layers: int,
        interrupt: Interrupt,
        log: native_log.NativeLog,
        progress: Callable[[float], bool],
    ) -> LlamaModel:
        """Load weights and make the context.

        Args:
            n_ctx: gives the wished context from the trained one.
            progress: called with 0 to 1; False ends the load.

        Raises:
            Cancelled: `progress` said so.
            NotEnoughMemory, UnsupportedModel, ModelFileDamaged, LoadFailed: by what llama.cpp logged.
        """
        stopped = False

        @_L.llama_progress_callback  # type: ignore[untyped-decorator]
        def report(fraction: float, _data: Any) -> bool:
            nonlocal stopped
            stopped = stopped or not progress(fraction)
            return not stopped

        name = os.path.basename(request.path)  # noqa: PTH119 (any characters, also those no Path shows)
        log.start_load()
        try:
            model = load_weights(request, n_gpu_layers, report, extra_buffers=not amx_is_unsafe())
            if not model:
                if stopped:
                    raise Cancelled("The load was stopped")
                raise native_log.load_error(name, log.end_load(), log.tail())
            context = None
            try:
                if not request.embeddings:
                    _refuse_non_chat(model, name)
                if not progress(1.0):
                    raise Cancelled("The load was stopped")
                handles = read_adapters(model, request.adapters, log.tail)
                wished = n_ctx(_L.llama_model_n_ctx_train(model))
                context = make_context(model, request, wished, interrupt)
                if not context:
                    raise native_log.load_error(name, log.end_load(), log.tail())
                if not request.embeddings and not _L.llama_get_memory(context):
                    raise _no_chat(name)
                adapters = Adapters(context, handles, request.adapters)
                if handles:
                    warm_up(context, _L.llama_vocab_bos(_L.llama_model_get_vocab(model)))
                return cls(model, context, log.end_load(), adapters)
            except BaseException:
                if context:
                    _L.llama_free(context)
                _L.llama_model_free(model)
                raise
        finally:
            log.end_load()

    def close(self) -> None:
        if self._model:
            _L.llama_batch_free(self._batch)
            _L.llama_free(self.context)
            _L.llama_model_free(self._model)
            self._model = self.context = None

    def metadata(self, key: str) -> str:
        """A value of the file's metadata as text, "" if it is not there."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed: int = _L.llama_model_meta_val_str(self._model, key.encode(), buffer, size)
            if needed < 0:
                return ""
            if needed < size:
                return buffer.raw[:needed].decode("utf-8", "replace")
            size = needed + 1

    def metadata_token(self, role: str) -> str:
        """Text of the token that the file names for a role ("unknown", "padding"), "" if it names none."""
        value = self.metadata(f"tokenizer.ggml.{role}_token_id")
        return self.vocab.token_text(int(value)) if value.isdigit() else ""

    def facts(self) -> dict[str, Any]:
        """Plain figures of the model, named as in `events.ModelInfo`."""
        model = self._model
        file_type = _L.llama_ftype_name(_L.llama_model_ftype(model))
        return {
            "architecture": self.metadata("general.architecture"),
            "quantization": (file_type or b"").decode("utf-8", "replace"),
            "n_params": _L.llama_model_n_params(model),
            "size_bytes": _L.llama_model_size(model),
            "n_ctx": self.n_ctx,
            "n_ctx_train": _L.llama_model_n_ctx_train(model),
            "n_slots": self.n_slots,
            "n_vocab": self.vocab.n_tokens,
            "n_layer": _L.llama_model_n_layer(model),
            "n_embd": _L.llama_model_n_embd(model),
            "n_batch": self.n_batch,
            "n_ubatch": self.n_ubatch,
            "n_threads": self.n_threads,
            "n_threads_batch": self.n_threads_batch,
            "eog_tokens": self.vocab.eog_tokens,
            "bos_token": self.vocab.bos_token,
            "add_bos": self.vocab.adds_bos,
        }

    def chat_template(self) -> str | None:
        text = _L.llama_model_chat_template(self._model, None)
        return text.decode("utf-8", "replace") if text else None

    # ------------------------------------------------------------------ decoding

    def decode(self, entries: Sequence[tuple[int, int, int, bool]]) -> int:
        """One `llama_decode` of (token, position, sequence, wants logits) entries.

        The caller must have made sure that there are cells for all of them and that there are at most n_batch.

        Returns:
            0 done; 1 no room found (nothing changed); 2 aborted by the interrupt; below 0 failed. After 2 and below 0
            the memory may hold a part: see `cells`.
        """
        batch = self._batch
        token, position, n_seq, seq, logits = self._lists
        for i, (t, p, s, wanted) in enumerate(entries):
            token[i], position[i], n_seq[i], logits[i] = t, p, 1, wanted
            seq[i][0] = s
        batch.n_tokens = len(entries)
        code: int = _L.llama_decode(self.context, batch)
        return code

    def logprob(self, row: int, token: int) -> float:
        """Natural logarithm of the token's probability by the raw logits of batch entry `row`."""
        return self._probability.log(_logits_at(self.context, row), token)

    def most_probable(self, row: int) -> tuple[int, float]:
        """(the token with the highest logit of batch entry `row`, the logarithm of its probability)"""
        address = _logits_at(self.context, row)
        logits = np.ctypeslib.as_array((ctypes.c_float * self.vocab.n_tokens).from_address(address))
        token = int(logits.argmax())
        return token, self._probability.log(address, token)

    def look(self, row: int, token: int) -> Raw:
        """The whole distribution by the raw logits of batch entry `row`, of which `token` was chosen."""
        if self._distribution is None:
            self._distribution = Distribution(self.vocab.n_tokens)
        return self._distribution.look(_logits_at(self.context, row), token)

    def sampler(self, params: Any, constraint: Any = None, *, trace: bool = False) -> SamplerChain:
        return SamplerChain(params, self.vocab.handle, self.vocab.n_tokens, self.n_ctx, constraint, trace=trace)


def amx_is_unsafe() -> bool:
    """Whether llama.cpp was built with AMX and nobody said that its compiler can be trusted with it.

    GCC before 14 (PR target/114098) drops most of the tile configuration that `_tile_loadconfig` reads; ggml's AMX
    code then dies of an illegal instruction in the first decode. The compiler of a build cannot be asked, so AMX
    stays off.
    """
    return "AMX_INT8 = 1" in system_info() and os.environ.get(ALLOW_AMX_VARIABLE) != "1"


def _refuse_non_chat(model: Any, name: str) -> None:
    if _L.llama_model_has_encoder(model) or not _L.llama_model_has_decoder(model):
        raise _no_chat(name)


def _no_chat(name: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name} is not a model that writes text token by token",
        hint="Choose a chat or text model; embedding and translation models cannot chat.",
    )
