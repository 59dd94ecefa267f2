"""Requests to a worker, and the JSON lines that carry them and its events.

One JSON object a line, UTF-8, "\n" at the end. Requests go to the worker's standard input, events come from what was
its standard output. End of input means: stop. Both sides use these records; nothing else is on the wire.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine import events
from engine.engine_options import Adapter
from engine.message import Overflow, PromptMessage
from engine.sampling import SamplingParams

PROTOCOL_VERSION = 2
#: a line longer than this is refused on either side (a prompt of 64 MiB is a mistake or an attack)
MAX_LINE_BYTES = 64 * 1024 * 1024
NO_DEVICE = "none"
Pooling = Literal["own", "mean", "cls", "last", "none"]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=str.lower):
    """Base of all requests. `id` is chosen by the caller and names all events that answer it."""

    id: str


class Load(Request, frozen=True):
    """Load a model; a loaded one is unloaded first. Answered by `LoadProgress`..., then `Loaded` or `Error`.

    Attributes:
        n_ctx: context wished, in tokens; None lets the worker choose min(trained context, 8192).
        n_gpu_layers: layers to offload; None: all where a GPU device is present, else 0; -1: all.
        n_slots: sequences that may be worked on at once.
        n_threads, n_threads_batch: CPU threads for writing and for reading prompts; None: see `engine.cores`, and for
            prompts as for writing.
        kv_type_k, kv_type_v: ggml type names ("f16", "q8_0").
        chat_template: template to use in place of the model's own; None: the model's own.
        flash_attention: "auto", "on", "off".
        n_cpu_moe: the experts of this many first layers stay in main memory.
        tensor_split: shares of the devices; empty: by their free memory.
        devices: names of the devices to use; empty: all that llama.cpp takes by itself; (`NO_DEVICE`,): none.
        offload_kqv: the KV cache lies where its layer is. op_offload: devices help with prompts for layers on the host.
        swa_full: a full cache also for sliding-window layers.
        use_mmap: the file is used as memory; None: where that is good for the devices.
        use_mlock: the weights may not leave memory.
        adapters: LoRA adapters; only their scales can be changed later (`SetAdapters`).
        embeddings: load it for `Embed` and for nothing else.
        draft_path: a small model of the same vocabulary that guesses tokens ahead; empty: none.
        kv_folder: where states of chats are kept on disk; empty: nowhere. kv_cap_bytes: how much all of them may take.
    """

    path: str
    n_ctx: int | None = None
    n_gpu_layers: int | None = None
    n_batch: int = 2048
    n_ubatch: int = 512
    n_slots: int = 4
    n_threads: int | None = None
    n_threads_batch: int | None = None
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    use_mmap: bool | None = None
    use_mlock: bool = False
    chat_template: str | None = None
    flash_attention: Literal["auto", "on", "off"] = "auto"
    n_cpu_moe: int = 0
    tensor_split: tuple[float, ...] = ()
    devices: tuple[str, ...] = ()
    offload_kqv: bool = True
    op_offload: bool = True
    swa_full: bool = False
    adapters: tuple[Adapter, ...] = ()
    embeddings: bool = False
    draft_path: str = ""
    kv_folder: str = ""
    kv_cap_bytes: int = 4 << 30


class Generate(Request, frozen=True):
    """Generate an answer to messages (through the chat template) or a plain continuation of `prompt`.

    Exactly one of messages and prompt is given. Answered by `PromptProgress`..., `Token`..., then `Done` or `Error`.

    Attributes:
        continue_last: the last message is an unfinished assistant message that is to be written on.
        overflow: what to do when the messages do not fit; how many were dropped is reported.
        logprobs: report each token's probability.
        priority: lower is served first; the visible chat has 0.
        cache_key: names the chat whose state may be kept and found again; empty: nothing is kept on disk.
        speculate: tokens may be guessed ahead and checked, where that is faster. The answer is the same but
            for rounding.
        json_schema, grammar: JSON Schema, or GBNF, that the answer has to follow, as text; at most one of them.
            Thinking comes before it and is free.
        trace: tell how each token was chosen, and what the prompt was made of (`PromptTrace`, `Token.detail`,
            `Done.marks`).
        forced: tokens with which the answer begins. They are taken as if they had been chosen, but nothing is drawn for
            them. An end of generation may only be the last of them.
        n_draws, n_xtc_draws: so many random numbers of the draw, and of XTC, are passed over before the first one.
        surprises: of the tokens that were chosen before, in bits, as they were drawn (0 where one was left): Mirostat
            goes on as if it had chosen them.
    """

    messages: tuple[PromptMessage, ...] = ()
    prompt: str | None = None
    sampling: SamplingParams = SamplingParams()
    continue_last: bool = False
    overflow: Overflow = "error"
    logprobs: bool = True
    priority: int = 0
    cache_key: str = ""
    speculate: bool = False
    json_schema: str | None = None
    grammar: str | None = None
    trace: bool = False
    forced: tuple[int, ...] = ()
    n_draws: int = 0
    n_xtc_draws: int = 0
    surprises: tuple[float, ...] = ()


class Prioritize(Request, frozen=True):
    """Give the request `target` another priority, wherever it is. Nothing answers this."""

    target: str
    priority: int


class Forget(Request, frozen=True):
    """Nothing of a chat (`Generate.cache_key`) may stay, in memory or on disk. An empty key: nothing of any chat may
    stay on disk, and nothing is written there any more. Nothing answers this."""

    cache_key: str


class Watch(Request, frozen=True):
    """Report what the KV cache holds (`KvMap`): at once, and then when it has changed, at most every so many seconds.
    0: no more. Nothing else answers this."""

    interval_s: float = 0.0


class Stop(Request, frozen=True):
    """Stop the request `target` wherever it is: queued, loading, reading the prompt, writing. It ends with `Done`
    (finish_reason "cancelled"), a load with `Error` (code "cancelled"). An unknown target is ignored."""

    target: str


class Tokenize(Request, frozen=True):
    """Tokens of a text (special: parse control tokens in it) or of messages rendered as for `Generate`."""

    text: str | None = None
    messages: tuple[PromptMessage, ...] = ()
    add_special: bool = False
    special: bool = False


class Ledger(Request, frozen=True):
    """What would occupy which tokens of the context if the messages were sent now. Answered by `ContextLedger`.

    It is worked out between the steps of running answers. A newer one with the same key takes the place of one that is
    not answered yet, which then ends with `Error` (code "cancelled").

    Attributes:
        overflow, max_tokens: as they would be sent.
    """

    messages: tuple[PromptMessage, ...]
    overflow: Overflow = "error"
    max_tokens: int | None = None
    key: str = ""


class Bench(Request, frozen=True):
    """Measure the model: read prompts of random tokens, then write an answer to each, all of them at the same time and
    past any end token. Answered by `BenchProgress`..., then `Benched` or `Error`; `Busy` while answers are written.

    Nothing else is taken up meanwhile, and the cache is empty before and after it.

    Attributes:
        n_parallel: how many prompts, and answers at once.
        n_prompt, n_generate: tokens of each prompt and of each answer.
        logprobs: compute each token's probability, as an answer of a chat does.
    """

    n_parallel: int = 1
    n_prompt: int = 512
    n_generate: int = 128
    logprobs: bool = True


class SetAdapters(Request, frozen=True):
    """Change the scales of adapters that were loaded with the model; those not named get 0. Answered by `AdaptersSet`.

    Everything in the KV cache was computed with the scales before and is dropped; answers at work are read again.
    """

    adapters: tuple[Adapter, ...] = ()


class Embed(Request, frozen=True):
    """Turn texts into vectors, with a model that was loaded for it. Answered by `Embedded`.

    Attributes:
        pooling: how the vectors of a text's tokens become one. "own": as the model's file says, the mean where it says
            nothing; "none": they do not, one vector per token comes back.
        normalize: scale each vector to length 1.
    """

    texts: tuple[str, ...]
    pooling: Pooling = "own"
    normalize: bool = True


class Unload(Request, frozen=True):
    """Free the model. Running generations end as cancelled. Answered by `Unloaded`."""


class Ping(Request, frozen=True):
    """Answered by `Pong` at once, also while the model thread is busy."""


AnyRequest = (
    Load
    | Generate
    | Prioritize
    | Forget
    | Watch
    | Stop
    | Tokenize
    | Ledger
    | SetAdapters
    | Embed
    | Unload
    | Ping
    | Bench
)

_encoder = msgspec.json.Encoder()
_request_decoder = msgspec.json.Decoder(AnyRequest)
_event_decoder = msgspec.json.Decoder(events.WorkerEvent)


def encode(record: Request | events.Event) -> bytes:
    """One line with its end. JSON escapes every line break inside strings, so a record never spans two lines."""
    return _encoder.encode(record) + b"\n"


def encode_into(record: Request | events.Event, buffer: bytearray) -> None:
    """The same, at the end of a buffer."""
    _encoder.encode_into(record, buffer, -1)
    buffer += b"\n"


def decode_request(line: bytes) -> AnyRequest:
    """Raises: msgspec.DecodeError, msgspec.ValidationError for anything that is not a request."""
    request: AnyRequest = _request_decoder.decode(line)
    return request


def decode_event(line: bytes) -> events.WorkerEvent:
    """Raises: msgspec.DecodeError, msgspec.ValidationError for anything that is not a worker's event."""
    event: events.WorkerEvent = _event_decoder.decode(line)
    return event
