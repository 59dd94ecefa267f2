"""Several sequences in a plain llama.cpp loop, as its batched measurement has it: what the worker is compared with.

One context, all prompts in batches of n_batch, then one token of each sequence in every `llama_decode`. Options of the
context are the worker's own, unless `unified` is switched off: then each sequence has a part of the cache of its own.
"""

from __future__ import annotations

import ctypes
import os
import random
import time
from typing import Any

import numpy as np


class BareBatch:
    """A model and a context. What is in the cache is forgotten at each `read`.

    Args:
        endless: end tokens are banned, as the worker bans them.
    """

    def __init__(
        self,
        model: str,
        *,
        n_seq: int,
        n_ctx: int,
        n_threads: int,
        unified: bool = True,
        endless: bool = True,
        n_batch: int = 2048,
        n_ubatch: int = 512,
    ) -> None:
        import llama_cpp.llama_cpp as lib

        self.lib: Any = lib
        self._quiet = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self._quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        options = lib.llama_model_default_params()
        options.n_gpu_layers = 0
        options.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        self.model = lib.llama_model_load_from_file(os.fsencode(model), options)
        assert self.model, "llama.cpp cannot load the model"
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.n_vocab = lib.llama_vocab_n_tokens(self.vocab)
        shape = lib.llama_context_default_params()
        shape.n_ctx, shape.n_seq_max = n_ctx, n_seq
        shape.n_batch, shape.n_ubatch = n_batch, n_ubatch
        shape.n_threads = shape.n_threads_batch = n_threads
        shape.kv_unified, shape.swa_full, shape.no_perf = unified, False, True
        shape.n_outputs_max = n_seq
        self.context = lib.llama_init_from_model(self.model, shape)
        assert self.context, "llama.cpp makes no context"
        self.n_batch = n_batch
        self._batch = lib.llama_batch_init(n_batch, 0, 1)
        self._ends = [t for t in range(self.n_vocab) if lib.llama_vocab_is_eog(self.vocab, t)]
        self._samplers = [self._sampler(endless) for _ in range(n_seq)]
        self._rows: list[int] = []
        self._past: list[int] = []

    def _sampler(self, endless: bool) -> Any:
        lib = self.lib
        options = lib.llama_sampler_chain_default_params()
        options.no_perf = True
        chain = lib.llama_sampler_chain_init(options)
        if endless and self._ends:
            bans = (lib.llama_logit_bias * len(self._ends))(*((token, -1e9) for token in self._ends))
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_logit_bias(self.n_vocab, len(self._ends), bans))
        lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
        return chain

    def random_prompts(self, n_seq: int, n_tokens: int) -> list[list[int]]:
        """The prompts of the worker's own measurement (`engine.worker.bench`)."""
        draw = random.Random(1)
        prompts = [[draw.randrange(self.n_vocab) for _ in range(n_tokens)] for _ in range(n_seq)]
        if self.lib.llama_vocab_get_add_bos(self.vocab):
            for prompt in prompts:
                prompt[0] = self.lib.llama_vocab_bos(self.vocab)
        return prompts

    def tokens_of(self, text: str) -> list[int]:
        raw = text.encode()
        room = (ctypes.c_int32 * (len(raw) + 16))()
        count = self.lib.llama_tokenize(self.vocab, raw, len(raw), room, len(room), True, True)
        return list(room[:count])

    # ------------------------------------------------------------------ steps

    def forget(self) -> None:
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), False)
        self._rows, self._past = [], []

    def feed(self, entries: list[tuple[int, int, int, bool]]) -> None:
        """One `llama_decode` of (token, position, sequence, wants logits)."""
        batch = self._batch
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        batch.n_tokens = len(entries)
        code = self.lib.llama_decode(self.context, batch)
        assert code == 0, f"llama_decode: {code}"

    def read(self, prompts: list[list[int]], n_batch: int = 0) -> float:
        """Seconds to read them, all of them in batches of n_batch (0: the context's own)."""
        self.forget()
        began = time.perf_counter()
        size = n_batch or self.n_batch
        entries = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        first: dict[int, int] = {}
        for start in range(0, len(entries), size):
            part = entries[start : start + size]
            self.feed(part)
            for row, (_, _, sequence, wanted) in enumerate(part):
                if wanted:
                    first[sequence] = self._sample(sequence, row)
        self.lib.llama_synchronize(self.context)
        took = time.perf_counter() - began
        self._past = [len(prompt) for prompt in prompts]
        self.next = [first[sequence] for sequence in range(len(prompts))]
        return took

    def _sample(self, sequence: int, row: int) -> int:
        token: int = self.lib.llama_sampler_sample(self._samplers[sequence], self.context, row)
        return token

    def write(self, n_tokens: int) -> tuple[float, list[list[int]]]:
        """Seconds of so many steps after `read`, and the tokens of each sequence (the one from `read` first).

        Sequences whose end token came leave the batch.
        """
        out = [[token] for token in self.next]
        ended = {sequence for sequence, token in enumerate(self.next) if token in self._ends}
        began = time.perf_counter()
        for _ in range(n_tokens):
            active = [sequence for sequence in range(len(out)) if sequence not in ended]
            if not active:
                break
            self.feed([(out[s][-1], self._past[s], s, True) for s in active])
            for row, sequence in enumerate(active):
                self._past[sequence] += 1
                token = self._sample(sequence, row)
                out[sequence].append(token)
                if token in self._ends:
                    ended.add(sequence)
        took = time.perf_counter() - began
        return took, [[token for token in tokens if token not in self._ends] for tokens in out]

    def logits(self, row: int) -> Any:
        """A copy of the logits of a row of the last `feed`."""
        pointer = self.lib.llama_get_logits_ith(self.context, row)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        return np.array((ctypes.c_float * self.n_vocab).from_address(address), np.float32)

    def close(self) -> None:
        lib = self.lib
        for sampler in self._samplers:
            lib.llama_sampler_free(sampler)
        lib.llama_batch_free(self._batch)
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)
