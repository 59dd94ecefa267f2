"""What holding an answer to a JSON Schema costs, and how much of JSON Schema is held, for each engine that is there.

    python tests/bench/grammar.py [MODEL.gguf] [--tokens 160] [--rounds 5] [--json FILE]

Engines: llguidance, as the worker uses it; llama.cpp's own grammar, fed by the converter that llama-cpp-python ships;
xgrammar, if it can be imported. All get the same schemas (`tests/worker/schema_cases.py`) and the same vocabulary.

compile: from the text of a schema to something that can give a mask, median and worst over all schemas that compile.
mask: computing which tokens may come next and taking the next one, per token, over the right values of all schemas,
written in the model's own tokens. For llama.cpp's grammar that is `llama_sampler_apply` on all tokens and
`llama_sampler_accept`. decode: tokens a second of the worker with a schema that leaves everything free but the form (a
list of texts), beside the same model without one, in turns; the ratio is of medians.
coverage: schemas for which every right value can be written and no wrong one; those refused; and those held wrongly,
which is the worst.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "worker")]

from raw_worker import RawWorker  # noqa: E402
from schema_cases import CASES, REFUSED, Case  # noqa: E402

FREE = {"type": "array", "items": {"type": "string"}, "minItems": 100}
PROMPT = "Write a JSON list of long sentences about foxes."


class Refused(Exception):
    """The engine says that it cannot hold a schema."""


@dataclass
class Result:
    name: str
    compile_ms: list[float] = field(default_factory=list)
    mask_us: list[float] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


class Model:
    """A model's vocabulary, without its weights."""

    def __init__(self, path: str) -> None:
        import llama_cpp.llama_cpp as lib

        from engine.worker.vocabulary import Vocabulary

        self.lib: Any = lib
        self._quiet = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self._quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        options = lib.llama_model_default_params()
        options.vocab_only = True
        self.model = lib.llama_model_load_from_file(os.fsencode(path), options)
        self.vocab = Vocabulary(self.model)

    def tokens(self, text: str) -> list[int]:
        return self.vocab.tokenize(text, add_special=False, parse_special=False)


# ---------------------------------------------------------------------- engines


class Llguidance:
    name = "llguidance"

    def __init__(self, model: Model) -> None:
        from engine.worker.grammar import GrammarCompiler

        self.model = model
        began = time.perf_counter()
        self.compiler = GrammarCompiler(model.vocab)
        self.compiler.compile("schema", "{}")
        self.once_ms = 1e3 * (time.perf_counter() - began)

    def compile(self, schema: Any) -> Any:
        from engine.errors import EngineError
        from engine.worker.constraint import Constraint

        try:
            return Constraint(self.compiler._compile("schema", json.dumps(schema)))
        except EngineError as error:
            raise Refused(error.message) from None

    def step(self, state: Any, token: int) -> bool:
        from engine.worker.candidates import has

        allowed = state.allowed()
        if not has(allowed, token):
            return False
        state.accept(token)
        return True

    def ends(self, state: Any) -> bool:
        return bool(state.satisfied)


class LlamaGrammar:
    name = "llama.cpp grammar"
    once_ms = 0.0

    def __init__(self, model: Model) -> None:
        self.model, lib = model, model.lib
        self.n = model.vocab.n_tokens
        self.data = (lib.llama_token_data * self.n)()
        self.plain = (lib.llama_token_data * self.n)(*(lib.llama_token_data(i, 0.0, 0.0) for i in range(self.n)))

    def compile(self, schema: Any) -> Any:
        from llama_cpp.llama_grammar import json_schema_to_gbnf

        try:
            text = json_schema_to_gbnf(json.dumps(schema))
        except Exception as error:
            raise Refused(repr(error)) from None
        with _silent():
            made = self.model.lib.llama_sampler_init_grammar(self.model.vocab.handle, text.encode(), b"root")
        if not made:
            raise Refused("llama.cpp does not take the grammar")
        return made

    def _apply(self, state: Any) -> Any:
        lib = self.model.lib
        ctypes.memmove(self.data, self.plain, ctypes.sizeof(self.data))
        array = lib.llama_token_data_array(data=self.data, size=self.n, selected=-1, sorted=False)
        lib.llama_sampler_apply(state, ctypes.byref(array))
        return self.data

    def step(self, state: Any, token: int) -> bool:
        if self._apply(state)[token].logit != 0.0:
            return False
        self.model.lib.llama_sampler_accept(state, token)
        return True

    def ends(self, state: Any) -> bool:
        return bool(self._apply(state)[self.model.vocab.eog_tokens[0]].logit == 0.0)


class Xgrammar:
    name = "xgrammar"

    def __init__(self, model: Model) -> None:
        import xgrammar

        began = time.perf_counter()
        pieces = [model.vocab.piece(token) for token in range(model.vocab.n_tokens)]
        info = xgrammar.TokenizerInfo(
            pieces, xgrammar.VocabType.RAW, vocab_size=len(pieces), stop_token_ids=list(model.vocab.eog_tokens)
        )
        self.x, self.n = xgrammar, len(pieces)
        self.compiler = xgrammar.GrammarCompiler(info, cache_enabled=False, max_threads=1)
        self.mask = xgrammar.allocate_token_bitmask(1, self.n)
        self.eog = model.vocab.eog_tokens[0]
        self.once_ms = 1e3 * (time.perf_counter() - began)

    def compile(self, schema: Any) -> Any:
        try:
            return self.x.GrammarMatcher(self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False))
        except Exception as error:
            raise Refused(repr(error)) from None

    def _allows(self, token: int) -> bool:
        return bool(int(self.mask[0, token // 32]) >> token % 32 & 1)

    def step(self, state: Any, token: int) -> bool:
        self.mask.fill_(-1)
        state.fill_next_token_bitmask(self.mask)
        return self._allows(token) and bool(state.accept_token(token))

    def ends(self, state: Any) -> bool:
        self.mask.fill_(-1)
        state.fill_next_token_bitmask(self.mask)
        return self._allows(self.eog)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """llama.cpp prints grammars that it refuses."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


# ---------------------------------------------------------------------- measuring


def measure(engine: Any, model: Model) -> Result:
    result = Result(engine.name)
    for case in CASES:
        began = time.perf_counter()
        try:
            engine.compile(case.schema)
        except Refused as error:
            result.refused.append(f"{case.name}: {error}"[:150])
            continue
        result.compile_ms.append(1e3 * (time.perf_counter() - began))
        problem = _problem(engine, model, case, result)
        (result.wrong if problem else result.held).append(f"{case.name}: {problem}" if problem else case.name)
    for schema, word, _ in REFUSED:
        try:
            engine.compile(schema)
        except Refused:
            continue
        result.silent.append(word)
    return result


def _problem(engine: Any, model: Model, case: Case, result: Result) -> str:
    for text in case.right:
        if not _writes(engine, model, case.schema, text, result.mask_us):
            return f"cannot write {text}"
    for text in case.wrong:
        if _writes(engine, model, case.schema, text, []):
            return f"writes {text}"
    return ""


def _writes(engine: Any, model: Model, schema: Any, text: str, times: list[float]) -> bool:
    state = engine.compile(schema)
    for token in model.tokens(text):
        began = time.perf_counter()
        if not engine.step(state, token):
            return False
        times.append(1e6 * (time.perf_counter() - began))
    return bool(engine.ends(state))


def decode(path: str, n_tokens: int, rounds: int) -> tuple[float, float]:
    """Tokens a second of the worker, free and held, in turns."""
    free, held = [], []
    with RawWorker() as worker:
        worker.load(path, n_ctx=2048)
        for _ in range(rounds + 1):
            for rates, fields in ((free, {}), (held, {"json_schema": json.dumps(FREE)})):
                answer = worker.ask(
                    PROMPT,
                    temperature=0.8,
                    seed=1,
                    max_tokens=n_tokens,
                    logit_bias=_no_end(worker),
                    timeout=300,
                    **fields,
                )
                rates.append(answer.done["timings"]["decode_tps"])
    return statistics.median(free[1:]), statistics.median(held[1:])


def _no_end(worker: RawWorker) -> dict[str, float]:
    loaded = next(event for event in worker.events if event["type"] == "loaded")
    return {str(token): -1e10 for token in loaded["model"]["eog_tokens"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not options.model:
        from engine.models import starter

        options.model = str(starter.find())
    model = Model(options.model)
    makers: list[Callable[[Model], Any]] = [Llguidance, LlamaGrammar, Xgrammar]
    results, print_rows = [], []
    for make in makers:
        try:
            engine = make(model)
        except ImportError as error:
            print(f"{make.name}: not here ({error})")  # type: ignore[attr-defined]
            continue
        found = measure(engine, model)
        results.append(found)
        masks = sorted(found.mask_us)
        print_rows.append(
            f"{found.name:20}{engine.once_ms:9.0f}{statistics.median(found.compile_ms):11.2f}"
            f"{max(found.compile_ms):9.1f}{statistics.median(masks):11.0f}{masks[int(0.95 * len(masks))]:9.0f}"
            f"{masks[-1]:9.0f}{len(found.held):7}{len(found.refused):9}{len(found.wrong):7}{len(found.silent):8}"
        )
    print(f"{model.vocab.n_tokens} tokens, {len(CASES)} schemas, {len(REFUSED)} that cannot be held")
    print(f"{'':20}{'once':>9}{'compile ms':>20}{'mask and accept, us':>29}{'schemas of the list':>23}{'let':>8}")
    print(f"{'engine':20}{'ms':>9}{'median':>11}{'worst':>9}{'median':>11}{'95 %':>9}{'worst':>9}"
          f"{'held':>7}{'refused':>9}{'wrong':>7}{'through':>8}")  # fmt: skip
    print("\n".join(print_rows))
    for found in results:
        for label, rows in (("refused", found.refused), ("wrong", found.wrong)):
            for row in rows:
                print(f"  {found.name}, {label}: {row}")
        if found.silent:
            print(f"  {found.name}, let through: {', '.join(found.silent)}")
    free, held = decode(options.model, options.tokens, options.rounds)
    print(f"decode: free {free:.1f}, held {held:.1f} tokens/s, ratio {held / free:.3f}")
    if options.json:
        data = {"results": [vars(found) for found in results], "free_tps": free, "held_tps": held}
        Path(options.json).write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
