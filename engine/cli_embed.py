"""`inglenook embed`: texts as vectors."""

from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Iterator
from typing import Any

from engine import paths as places
from engine.cli_arguments import clean_text
from engine.cli_load import CliLoad
from engine.cli_output import for_terminal, json_line, read_stdin
from engine.cli_worker import CliWorker
from engine.embeddings import GROUP, rows
from engine.errors import InvalidRequest
from engine.events import Embedded, Loaded, ModelInfo
from engine.load_request import embedding_options
from engine.models import starter
from engine.settings import Settings
from engine.worker import protocol


def run(options: argparse.Namespace) -> int:
    """The exit status.

    Raises:
        EngineError: what went wrong; the caller prints it.
    """
    texts = options.texts or read_stdin().splitlines()
    if not texts:
        raise InvalidRequest("There is no text to embed", hint='Give one: inglenook embed "a text".')
    request = _load_request(options)
    with CliWorker() as worker:
        load = CliLoad(worker, request, _note)
        for event in load.events():
            if isinstance(event, Loaded):
                model = event.model
        answers = list(_answers(worker, texts, options))
    (_json if options.json else _lines)(model, answers)
    return 0


def _note(text: str) -> None:
    sys.stderr.write(f"inglenook: {for_terminal(text)}\n")


def _load_request(options: argparse.Namespace) -> protocol.Load:
    for name, low in (("context", 1), ("threads", 1), ("gpu_layers", -1)):
        value = getattr(options, name)
        if value is not None and not low <= value < 2**31:
            option = name.replace("_", "-")
            raise InvalidRequest(f"--{option} must be at least {low}, not {value}", details={"field": name})
    settings_file = places.resolve().settings_file
    recent = Settings(settings_file).recent_models if places.is_file(settings_file) else ()
    path = str(starter.resolve_model(options.model, places.resolve(), recent).absolute())
    if path != clean_text(path):
        raise InvalidRequest("The name of the model file is no valid UTF-8", details={"field": "model"})
    chosen = {
        "n_ctx": options.context,
        "n_gpu_layers": options.gpu_layers,
        "n_threads": options.threads,
        "n_threads_batch": options.threads,
    }
    wanted = {name: value for name, value in chosen.items() if value is not None}
    return protocol.Load(id="load", path=path, **embedding_options(wanted))


def _answers(worker: CliWorker, texts: list[str], options: argparse.Namespace) -> Iterator[Embedded]:
    for start in range(0, len(texts), GROUP):
        request = protocol.Embed(
            id=f"embed{start}",
            texts=tuple(texts[start : start + GROUP]),
            pooling=options.pooling,
            normalize=not options.no_normalize,
        )
        for event in worker.run(request):
            if isinstance(event, Embedded):
                yield event


def _lines(_: ModelInfo, answers: list[Embedded]) -> None:
    for answer in answers:
        for vectors in rows(answer):
            for vector in vectors:
                sys.stdout.write(" ".join(f"{number:.7g}" for number in vector) + "\n")


def _json(model: ModelInfo, answers: list[Embedded]) -> None:
    """The form of OpenAI's endpoint with what it leaves out; each vector as a list, with "none" a list of lists."""
    data: list[dict[str, Any]] = []
    for answer in answers:
        for vectors, n_tokens in zip(rows(answer), answer.n_tokens, strict=True):
            found: list[array[float]] = list(vectors)
            several = answer.pooling == "none"
            data.append(
                {
                    "index": len(data),
                    "n_tokens": n_tokens,
                    "embedding": [list(vector) for vector in found] if several else list(found[0]),
                }
            )
    head = {
        "model": model.name,
        "path": model.path,
        "n_embd": answers[0].n_embd,
        "pooling": answers[0].pooling,
        "normalized": answers[0].normalized,
    }
    sys.stdout.write(json_line({**head, "data": data}))
