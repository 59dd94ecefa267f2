"""The command line's words: commands, options, and how texts become values."""

from __future__ import annotations

import argparse
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from engine.engine_options import Adapter
from engine.errors import InvalidRequest
from engine.sampling import SamplingParams

COMMANDS = ("bench", "chat", "doctor", "embed", "fit", "models", "trace")
#: other first words that the command line answers itself, without a window
FLAGS = ("-h", "--help", "-V", "--version", "--self-test")

_HELP = {
    "temperature": "randomness; 0 always takes the most probable token",
    "top_k": "keep the K most probable tokens; 0 keeps all",
    "top_p": "keep the smallest set whose probabilities add up to N; 1 keeps all",
    "min_p": "drop tokens less probable than N times the best one; 0 keeps all",
    "typical_p": "locally typical sampling; 1 switches it off",
    "top_n_sigma": "keep logits within N standard deviations of the best; -1 switches it off",
    "repeat_penalty": "divides the logits of recent tokens; 1 is none",
    "repeat_last_n": "window of the penalties in tokens; -1 is the whole context",
    "presence_penalty": "subtracted once from tokens that occurred",
    "frequency_penalty": "subtracted for each occurrence",
    "dry_multiplier": 'strength of the "don\'t repeat yourself" sampler; 0 is off',
    "dry_base": "base of its growth with the length of the repetition",
    "dry_allowed_length": "repetitions up to this many tokens are free",
    "dry_penalty_last_n": "its window in tokens; -1 is the whole context",
    "dry_sequence_breakers": "text that ends a repetition; may be given several times",
    "xtc_probability": "chance per token to exclude top choices",
    "xtc_threshold": "least probability of the excluded choices",
    "mirostat": "0 off, 1 or 2 the version",
    "mirostat_tau": "its target surprise",
    "mirostat_eta": "its learning rate",
    "logit_bias": "add BIAS to the logit of token ID; -inf bans it; may be given several times",
    "seed": "32-bit number; the same seed gives the same answer; without it a fresh one is drawn",
    "max_tokens": "most tokens to generate",
    "stop": "text that ends the answer and is cut off; may be given several times",
}


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong word is an error like all others, also with --json."""

    def error(self, message: str) -> NoReturn:
        raise InvalidRequest(message, hint=f'"{self.prog} --help" lists what is possible.')


def clean_text(text: str) -> str:
    """Text from the command line as UTF-8 can hold it: bytes that were no text become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def option_name(field: str) -> str:
    return "--" + field.replace("_", "-")


def _logit_bias(text: str) -> tuple[int, float]:
    token, sign, bias = text.partition("=")
    if not sign:
        raise ValueError(text)
    # JSON has no infinity; a worker reads -1e9 and less as a ban
    return int(token), max(float(bias), -1e10)


_logit_bias.__name__ = "ID=BIAS"


def _adapter(text: str) -> Adapter:
    """FILE or FILE=SCALE; a file name may hold "=" too."""
    path, sign, scale = text.rpartition("=")
    try:
        return Adapter(path, float(scale)) if sign and path else Adapter(text)
    except ValueError:
        return Adapter(text)


def _number_type(annotation: Any) -> Callable[[str], Any]:
    """int or float, out of `int`, `float`, `int | None`."""
    if isinstance(annotation, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
    return int if annotation is int else float


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """One option per field of `SamplingParams`, under its name."""
    group = parser.add_argument_group("sampling")
    hints = typing.get_type_hints(SamplingParams)
    for field in msgspec.structs.fields(SamplingParams):
        name, text = option_name(field.name), _HELP.get(field.name, "")
        common: dict[str, Any] = {"dest": field.name, "help": text, "default": argparse.SUPPRESS}
        if field.name == "logit_bias":
            group.add_argument(name, action="append", type=_logit_bias, metavar="ID=BIAS", **common)
        elif typing.get_origin(hints[field.name]) is tuple:
            group.add_argument(name, action="append", type=clean_text, metavar="TEXT", **common)
        else:
            default = "" if field.default is None else f" (default {field.default:g})"
            common["help"] = text + default
            group.add_argument(name, type=_number_type(hints[field.name]), metavar="N", **common)


def sampling_values(options: argparse.Namespace) -> dict[str, Any]:
    """The sampling parameters that were given, by field name."""
    names = (field.name for field in msgspec.structs.fields(SamplingParams))
    values = {name: getattr(options, name) for name in names if hasattr(options, name)}
    if "logit_bias" in values:
        values["logit_bias"] = dict(values["logit_bias"])
    return values


def _add_chat(commands: Any) -> None:
    chat = commands.add_parser(
        "chat",
        help="chat with a model in the terminal, or answer one prompt",
        description="Without --prompt and --messages: a chat in the terminal. "
        "Lines from a pipe are taken as one message each.",
        allow_abbrev=False,
    )
    chat.add_argument("-m", "--model", default="starter", help='a GGUF file, a name, or "starter" (the default)')
    chat.add_argument("-p", "--prompt", type=clean_text, metavar="T", help="the message; - reads standard input")
    chat.add_argument("-s", "--system", type=clean_text, default="", metavar="T", help="system prompt")
    chat.add_argument(
        "--messages",
        metavar="FILE",
        help="a conversation in OpenAI's form (JSON) to be answered; - reads standard input",
    )
    chat.add_argument("--template", metavar="FILE", help="chat template (Jinja) in place of the model's own")
    form = chat.add_mutually_exclusive_group()
    form.add_argument("--json-schema", metavar="FILE", help="the answer is JSON that follows this JSON Schema")
    form.add_argument("--grammar", metavar="FILE", help="the answer follows this grammar (GBNF)")
    chat.add_argument("--json", action="store_true", help="print one event a line")
    chat.add_argument("-v", "--verbose", action="store_true", help="show llama.cpp's own messages")
    model = chat.add_argument_group("model")
    model.add_argument("-c", "--context", type=int, metavar="N", help="context wished, in tokens")
    model.add_argument("--gpu-layers", type=int, metavar="N", help="layers on the GPU; -1: all")
    model.add_argument("--threads", type=int, metavar="N", help="threads; without it one per fast core")
    model.add_argument(
        "--lora",
        action="append",
        default=[],
        type=_adapter,
        metavar="FILE[=SCALE]",
        help="a LoRA adapter for the model (GGUF); may be given several times",
    )
    model.add_argument(
        "--draft", metavar="FILE", help="a small model with the same vocabulary (GGUF) that guesses tokens ahead"
    )
    add_sampling_options(chat)


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        help="will a model fit on this computer, and how",
        description="Plans how to load a model: layers on the GPU, context, cache. What is given is kept and checked; "
        "the rest is chosen. Nothing is loaded.",
        allow_abbrev=False,
    )
    fit.add_argument(
        "model",
        metavar="FILE|REPO",
        help='a GGUF file, a name, or "starter"; or, asking the hub, OWNER/NAME[:QUANTIZATION] or OWNER/NAME/FILE.gguf',
    )
    fit.add_argument("-c", "--context", type=int, metavar="N", help="context in tokens")
    fit.add_argument("--gpu-layers", type=int, metavar="N", help="layers on the GPU; -1: all")
    fit.add_argument("--kv-type", metavar="T", help="type of the KV cache (f16, q8_0, ...), or two for K and V: T,T")
    fit.add_argument("--flash-attn", choices=("auto", "on", "off"), help="flash attention")
    fit.add_argument("--ubatch", type=int, metavar="N", help="tokens of a prompt computed at once")
    fit.add_argument(
        "--parallel", type=int, metavar="N", default=1, help="answers written at the same time (default 1)"
    )
    fit.add_argument("--n-cpu-moe", type=int, metavar="N", help="keep the experts of the first N layers on the CPU")
    fit.add_argument("--tensor-split", metavar="A,B", help="shares of the devices")
    fit.add_argument("--no-kv-offload", action="store_true", help="keep the KV cache in main memory")
    fit.add_argument("--swa-full", action="store_true", help="full cache also for sliding-window layers")
    fit.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="NAME:FREE_MIB[:TOTAL_MIB]",
        help="plan for this device in place of the ones of this computer; may be given several times",
    )
    fit.add_argument("--ram", metavar="FREE_MIB[:TOTAL_MIB]", help="plan for this much main memory")
    fit.add_argument("--probe", action="store_true", help="ask llama.cpp itself (a dry run, up to a second more)")
    fit.add_argument("--exclude", action="append", default=[], metavar="NAME", help="do not use this device")
    fit.add_argument("--json", action="store_true", help="print one JSON object")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


_numbers.__name__ = "N,N,..."


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how fast a model reads and writes on this computer",
        description="Reads prompts and writes answers, several at once, in the model process alone and through stored "
        "chats, and prints the medians. Takes minutes and all cores; no chat of yours is touched.",
        allow_abbrev=False,
    )
    bench.add_argument("-m", "--model", default="starter", help='a GGUF file, a name, or "starter" (the default)')
    bench.add_argument("--pp", type=int, default=512, metavar="N", help="tokens of each prompt (default 512)")
    bench.add_argument("--tg", type=int, default=128, metavar="N", help="tokens of each answer (default 128)")
    bench.add_argument(
        "--parallel",
        type=_numbers,
        default=(1, 2, 4, 8),
        metavar="N,N",
        help="answers written at once, one row each (default 1,2,4,8)",
    )
    bench.add_argument("--runs", type=int, default=3, metavar="N", help="how often each row is measured (default 3)")
    bench.add_argument("--threads", type=int, metavar="N", help="threads; without it as many as a chat would have")
    bench.add_argument("--gpu-layers", type=int, metavar="N", help="layers on the GPU; -1: all")
    bench.add_argument("--json", action="store_true", help="print one JSON object a line, the result last")


def _add_embed(commands: Any) -> None:
    embed = commands.add_parser(
        "embed",
        help="turn texts into vectors",
        description="Prints a vector for each text, its numbers in one line. Texts with like meanings have like "
        "vectors. Without TEXT each line of standard input is one.",
        allow_abbrev=False,
    )
    embed.add_argument("texts", nargs="*", type=clean_text, metavar="TEXT", help="what to embed")
    embed.add_argument("-m", "--model", default="starter", help='a GGUF file, a name, or "starter" (the default)')
    embed.add_argument(
        "--pooling",
        choices=("own", "mean", "cls", "last", "none"),
        default="own",
        help="how the vectors of a text's tokens become one; none: one for each token (default: as the model says)",
    )
    embed.add_argument("--no-normalize", action="store_true", help="leave the lengths of the vectors as they are")
    embed.add_argument("-c", "--context", type=int, metavar="N", help="tokens of the longest text")
    embed.add_argument("--gpu-layers", type=int, metavar="N", help="layers on the GPU; -1: all")
    embed.add_argument("--threads", type=int, metavar="N", help="threads; without it one per fast core")
    embed.add_argument("--json", action="store_true", help="print one JSON object")


def _add_models(commands: Any) -> None:
    models = commands.add_parser("models", help="find, download, import, check and delete models", allow_abbrev=False)
    actions = models.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)

    def add(name: str, text: str, json_help: str) -> Any:
        made = actions.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)
        made.add_argument("--json", action="store_true", help=json_help)
        return made

    search = add("search", "find models on the Hugging Face Hub (HF_ENDPOINT names another)", "print a JSON list")
    search.add_argument("query", nargs="*", type=clean_text, metavar="WORD", help="words of the name")
    sorts = ("trending", "downloads", "likes", "updated", "created")
    search.add_argument("--sort", choices=sorts, default="downloads", help="what comes first (default downloads)")
    search.add_argument("--limit", type=int, default=20, metavar="N", help="most rows (default 20)")
    search.add_argument("--catalog", action="store_true", help="search the list that ships with Inglenook, offline")
    listed = add("list", "the models on this computer, those of other programs too", "print a JSON list")
    listed.add_argument("--refresh", action="store_true", help="look into every folder again")
    pull = add("pull", "download a model; interrupted, it goes on with the same command", "print the model as JSON")
    pull.add_argument(
        "model",
        metavar="MODEL",
        type=clean_text,
        help="REPO (the best quantization for this computer), REPO:QUANT, REPO/FILE (any shard brings the whole set), "
        "or a name of the catalogue",
    )
    pull.add_argument("--revision", default="", metavar="R", help="branch, tag or commit (default main)")
    imported = add("import", "take a GGUF file, or a folder of them, into the library", "print a JSON list")
    imported.add_argument("paths", nargs="+", metavar="PATH", help="file or folder")
    imported.add_argument("--in-place", action="store_true", help="use it where it is instead of copying it")
    verify = add("verify", "compute SHA-256 and compare it with the published one", "print a JSON list")
    verify.add_argument("models", nargs="*", metavar="MODEL", help="path or name; none: all")
    remove = add("rm", "move models to the trash", "print a JSON list")
    remove.add_argument("models", nargs="+", metavar="MODEL", help="path or name")


def _add_trace(commands: Any) -> None:
    trace = commands.add_parser(
        "trace",
        help="how an answer came about: its prompt, each token, where the time went",
        description="Shows the stored trace of an answer. Forced tokens are marked with =, guessed ones with +.",
        allow_abbrev=False,
    )
    trace.add_argument("message", metavar="MESSAGE|last", help="number of the answer, or the last one")
    trace.add_argument("--json", action="store_true", help="print all of it as JSON")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="inglenook",
        description="Chat with open-weight language models on your own computer. Without arguments the window opens.",
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    parser.add_argument("--check", action="store_true", help="with --version: ask whether there is a newer one")
    parser.add_argument("--self-test", action="store_true", help="load the starter model, answer, open a window")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_chat(commands)
    doctor = commands.add_parser(
        "doctor", help="what this computer has and what Inglenook found on it", allow_abbrev=False
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    _add_embed(commands)
    _add_fit(commands)
    _add_models(commands)
    _add_bench(commands)
    _add_trace(commands)
    return parser


def _chat_parser(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser | None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices.get(command)
            return found if isinstance(found, argparse.ArgumentParser) else None
    return None


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Options from words.

    The word after an option that takes a value is its value, even if it begins with a dash (`--prompt "- a list"`),
    unless it is an option itself.

    Raises:
        InvalidRequest: names the option.
    """
    parser = build_parser()
    words = list(argv)
    command = next((word for word in words if not word.startswith("-")), "")
    options = _chat_parser(parser, command)
    if options is not None:
        at = words.index(command) + 1
        words = [*words[:at], *_joined(words[at:], options)]
    return parser.parse_args(words)


def _joined(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    known = parser._option_string_actions
    result: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        action = known.get(word)
        takes_value = action is not None and action.nargs is None and action.const is None
        position += 1
        if takes_value and position < len(words) and words[position].startswith("-"):
            value = words[position]
            if value not in known and value != "-":
                # argparse would read it as an option; "=" ties it to its own
                assert action is not None
                word = f"{action.option_strings[-1]}={value}"
                position += 1
        result.append(word)
    return result
