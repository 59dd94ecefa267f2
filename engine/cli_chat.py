"""`inglenook chat`: one answer, or a chat in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from engine import paths as places
from engine import sampling
from engine.chat.export import messages_from_openai, read_messages
from engine.cli_arguments import clean_text, sampling_values
from engine.cli_load import CliLoad
from engine.cli_output import (
    INTERRUPTED,
    JsonOutput,
    Output,
    PlainOutput,
    exit_status,
    for_terminal,
    read_stdin,
)
from engine.cli_worker import CliWorker
from engine.engine_options import Adapter
from engine.errors import EngineError, InvalidRequest
from engine.events import Done, Event, Hello, Loaded, Log, ModelInfo
from engine.format_check import request_fields
from engine.formats.gbnf_lark import to_lark
from engine.formats.json_schema import prepare
from engine.message import AnswerFormat, PromptMessage
from engine.models import starter
from engine.sampling import SamplingParams
from engine.settings import Settings
from engine.worker import protocol

_HELP = "/new starts over   /exit or Ctrl+D leaves   Ctrl+C stops an answer"


def run(options: argparse.Namespace) -> int:
    """The exit status.

    Raises:
        EngineError: what went wrong; the caller prints it.
        KeyboardInterrupt: outside an answer.
    """
    one_shot = options.prompt is not None or options.messages is not None
    if options.json and not one_shot:
        raise InvalidRequest(
            "--json needs --prompt or --messages",
            hint="--prompt - reads the message from standard input.",
            details={"field": "prompt"},
        )
    output: Output = JsonOutput() if options.json else PlainOutput(figures=not one_shot)
    params = sampling.from_mapping(sampling_values(options))
    form = _format(options)
    request = _load_request(options)
    messages = _messages(options)
    with CliWorker() as worker:
        load = CliLoad(worker, request, output.note)
        model = _load(load, output, options.verbose)
        if one_shot:
            done = _answer(worker, messages, params, output, options.verbose, form, speculate=bool(options.draft))
            load.answered(done)
            return INTERRUPTED if done.finish_reason == "cancelled" else 0
        chat = _Chat(worker, load, messages, params, output, options.verbose, form)
        return chat.run(model)


# ------------------------------------------------------------------ what was asked for


def _recent() -> Iterator[str]:
    settings_file = places.resolve().settings_file
    if places.is_file(settings_file):
        yield from Settings(settings_file).recent_models


def _load_request(options: argparse.Namespace) -> protocol.Load:
    for name, low in (("context", 1), ("threads", 1), ("gpu_layers", -1)):
        value = getattr(options, name)
        if value is not None and not low <= value < 2**31:
            option = name.replace("_", "-")
            raise InvalidRequest(f"--{option} must be at least {low}, not {value}", details={"field": name})
    template = None if options.template is None else _read_file(options.template, "template")
    path = starter.resolve_model(options.model, places.resolve(), _recent())
    text = str(path.absolute())
    if text != clean_text(text):
        raise InvalidRequest(
            "The name of the model file, or of a folder above it, is no valid UTF-8",
            hint="Rename it.",
            details={"field": "model"},
        )
    return protocol.Load(
        id="load",
        path=text,
        n_ctx=options.context,
        n_gpu_layers=options.gpu_layers,
        n_threads=options.threads,
        n_slots=1,
        chat_template=template,
        adapters=tuple(_absolute(adapter) for adapter in options.lora),
        draft_path=str(Path(options.draft).expanduser().absolute()) if options.draft else "",
    )


def _absolute(adapter: Adapter) -> Adapter:
    return Adapter(str(Path(adapter.path).expanduser().absolute()), adapter.scale)


def _read_file(name: str, field: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidRequest(
            f"--{field}: {places.shown(Path(name))} cannot be read: {reason}", details={"field": field}
        ) from error


def _format(options: argparse.Namespace) -> AnswerFormat:
    """The form that answers have to keep to, checked as far as it can be without a model."""
    if options.json_schema is not None:
        text = _read_file(options.json_schema, "json-schema")
        prepare(text)
        return AnswerFormat("schema", text)
    if options.grammar is not None:
        text = _read_file(options.grammar, "grammar")
        to_lark(text)
        return AnswerFormat("grammar", text)
    return AnswerFormat()


def _messages(options: argparse.Namespace) -> tuple[PromptMessage, ...]:
    """The conversation to be answered: system prompt, messages from a file, the prompt."""
    if options.prompt == "-" and options.messages == "-":
        raise InvalidRequest("Standard input cannot be both --prompt and --messages", details={"field": "messages"})
    messages: list[PromptMessage] = []
    if options.messages is not None:
        messages += _conversation(options.messages)
    if options.system:
        messages.insert(0, PromptMessage(role="system", content=options.system))
    if options.prompt is not None:
        text = read_stdin() if options.prompt == "-" else options.prompt
        messages.append(PromptMessage(role="user", content=text))
    return tuple(messages)


def _conversation(name: str) -> list[PromptMessage]:
    if name != "-":
        return read_messages(Path(name))
    try:
        return messages_from_openai(json.loads(read_stdin()))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"--messages is no JSON: {error}", details={"field": "messages"}) from error


# ------------------------------------------------------------------ with the worker


def _show(event: Event, output: Output, verbose: bool) -> None:
    if isinstance(event, Log):
        if verbose:
            sys.stderr.write(for_terminal(event.text).rstrip("\n") + "\n")
            sys.stderr.flush()
    elif not isinstance(event, Hello):
        output.event(event)


def _load(load: CliLoad, output: Output, verbose: bool) -> ModelInfo:
    for event in load.events():
        _show(event, output, verbose)
        if isinstance(event, Loaded):
            model = event.model
    output.expect(bool(model.template.thinking_tag))
    for text in (*model.warnings, model.template.note):
        if text:
            output.note(text)
    return model


def _answer(
    worker: CliWorker,
    messages: tuple[PromptMessage, ...],
    params: SamplingParams,
    output: Output,
    verbose: bool,
    form: AnswerFormat,
    *,
    drop_oldest: bool = False,
    speculate: bool = True,
) -> Done:
    request = protocol.Generate(
        id=worker.client.new_id(),
        messages=messages,
        sampling=sampling.with_seed(params),
        overflow="drop_oldest" if drop_oldest else "error",
        speculate=speculate,
        **request_fields(form),
    )
    for event in worker.run(request):
        _show(event, output, verbose)
        if isinstance(event, Done):
            done = event
    return done


class _Chat:
    """A conversation typed in a terminal, or piped in line by line."""

    def __init__(
        self,
        worker: CliWorker,
        load: CliLoad,
        start: tuple[PromptMessage, ...],
        params: SamplingParams,
        output: Output,
        verbose: bool,
        form: AnswerFormat,
    ) -> None:
        self.form = form
        self.worker, self.start, self.params, self.output = worker, start, params, output
        self.verbose = verbose
        self.load = load
        self.messages = start
        self.typed = sys.stdin is not None and sys.stdin.isatty()
        self.status = 0

    def run(self, model: ModelInfo) -> int:
        if self.typed:
            _enable_line_editing()
            name = starter.NAME if starter.is_starter(model.path) else model.name
            sys.stderr.write(f"{for_terminal(name)} {model.quantization} · context {model.n_ctx} tokens\n{_HELP}\n")
            sys.stderr.flush()
        while True:
            try:
                text = self._read()
            except EOFError:
                if self.typed:
                    sys.stderr.write("\n")
                return self.status
            except KeyboardInterrupt:  # at the prompt it only clears the line
                sys.stderr.write("\n")
                continue
            command = text.strip()
            if command in ("/exit", "/quit"):
                return self.status
            if command == "/new":
                self.messages = self.start
                self.output.note("A new chat begins.")
            elif command == "/help":
                self.output.note(_HELP)
            elif command:
                self._turn(text)

    def _read(self) -> str:
        if self.typed and sys.stdout.isatty():
            return clean_text(input("\n› "))
        if self.typed:  # the answers go elsewhere; what is asked must not go with them
            sys.stderr.write("› ")
            sys.stderr.flush()
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            raise EOFError
        return clean_text(line.removesuffix("\n"))

    def _turn(self, text: str) -> None:
        messages = (*self.messages, PromptMessage(role="user", content=text))
        try:
            done = _answer(self.worker, messages, self.params, self.output, self.verbose, self.form, drop_oldest=True)
        except EngineError as error:
            if not self.worker.client.alive:
                raise
            self.status = exit_status(error)
            self.output.error(error)
            return
        self.load.answered(done)
        answer = PromptMessage(
            role="assistant",
            content=done.text,
            reasoning=done.reasoning,
            reasoning_tag=done.reasoning_tag or "think",
            reasoning_closed=done.reasoning_closed,
        )
        self.messages = (*messages, answer)


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401 (importing it gives input() its line editing)
    except ImportError:  # Windows: the console edits lines itself
        pass
