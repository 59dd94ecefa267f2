"""What the worker says."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.backend_words import AddOn
from engine.engine_options import Adapter
from engine.events.base import Event
from engine.events.tracing import Marks, PromptTrace, TokenDetail
from engine.events.watching import KvMap
from engine.figures import FitSummary
from engine.message import ErrorInfo, FinishReason, Overflow, Reread, Timings, Usage


class Device(msgspec.Struct, frozen=True):
    """A device as llama.cpp's registry lists it. Memory is in bytes, 0 where the backend does not tell.

    Attributes:
        kind: "cpu", "gpu", "igpu", "accel" (ggml-backend.h, `ggml_backend_dev_type`).
        backend: registry it belongs to ("CPU", "CUDA", "Metal", "Vulkan", "RPC").
    """

    name: str
    description: str
    kind: str
    backend: str
    memory_free_bytes: int = 0
    memory_total_bytes: int = 0


class TemplateInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which chat template is in use, and why.

    Attributes:
        source: "file" (the model's own), "guess" (none in the file, guessed from its special tokens), "fallback"
            (the model's own is broken, or nothing could be guessed), "user" (given by the user).
        name: short name of a built-in template ("chatml"), or "" for the file's own.
        note: a sentence for the user where the source is not "file"; empty otherwise.
        error: the template engine's words where the model's own template is broken.
        thinking_tag: tag in which this model thinks ("think"), empty if the template knows none.
        supports_system: False if the template refuses or ignores a system message (it is then folded into the first
            user message).
    """

    source: Literal["file", "guess", "fallback", "user"]
    name: str = ""
    note: str = ""
    error: str = ""
    thinking_tag: str = ""
    supports_system: bool = True


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A loaded model as llama.cpp reports it, after the load. n_ctx is the real one, never the wished one.

    Attributes:
        n_ctx: tokens the context really holds (all slots together, unified KV).
        n_slots: sequences that can be worked on at once.
        n_gpu_layers: layers that really are on a GPU, counted from llama.cpp's own placement.
        layer_devices: name of the device of each layer and then of the output layer, as llama.cpp placed them; empty
            where it did not say. n_cpu_moe: the experts of this many first layers were put into main memory.
        buffers: bytes per "device kind" as logged by llama.cpp, for instance {"CPU model": 98000000,
            "CPU KV": 47185920, "CPU compute": 101711872}.
        backends: backends in use ("CPU", "CUDA").
        eog_tokens: every end-of-generation token of the vocabulary.
        kv_bytes: size of the whole KV cache. kv_k_bytes, kv_v_bytes: of its keys and of its values; 0 where llama.cpp
            did not say.
        load_s: seconds the load took.
        warnings: sentences about the load the user should see (a cut context, a slower backend).
        devices: every device after the load, with the memory that is free then.
        fit: how it was planned and what it took; filled by the engine, not by the worker.
        adapters: LoRA adapters in it, with the scales they have now.
        embeddings: it was loaded for embeddings and cannot chat. pooling: how its file says that the vectors of a text
            become one; "" where it says nothing.
        cpu_module, add_ons: as in `Hello`.
    """

    path: str
    name: str
    architecture: str
    quantization: str
    n_params: int
    size_bytes: int
    n_ctx: int
    n_ctx_train: int
    n_slots: int
    n_vocab: int
    n_layer: int
    n_embd: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_gpu_layers: int
    template: TemplateInfo
    eog_tokens: tuple[int, ...] = ()
    bos_token: int = -1
    add_bos: bool = False
    flash_attention: str = "auto"
    kv_bytes: int = 0
    buffers: dict[str, int] = {}
    backends: tuple[str, ...] = ()
    load_s: float = 0.0
    warnings: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    fit: FitSummary | None = None
    n_threads_batch: int = 0
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    adapters: tuple[Adapter, ...] = ()
    embeddings: bool = False
    pooling: str = ""
    layer_devices: tuple[str, ...] = ()
    n_cpu_moe: int = 0
    kv_k_bytes: int = 0
    kv_v_bytes: int = 0
    cpu_module: str = ""
    add_ons: tuple[AddOn, ...] = ()


class Hello(Event, frozen=True):
    """First line of a worker. `devices` and `backends` come from the registry, not from guesses.

    cpu_module: the module that was chosen for this processor ("zen4"); "" where the CPU is built in.
    """

    protocol: int
    engine: str
    pid: int
    llama_cpp: str = ""
    system_info: str = ""
    backends: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    cpu_module: str = ""
    add_ons: tuple[AddOn, ...] = ()


class LoadProgress(Event, frozen=True):
    """fraction: 0 to 1, llama.cpp's own progress of reading the weights. stage: "weights" or "context"."""

    fraction: float
    stage: str = "weights"


class Loaded(Event, frozen=True):
    model: ModelInfo


class Unloaded(Event, frozen=True):
    pass


class PromptProgress(Event, frozen=True):
    """Prefill of one request: n_done of n_prompt tokens are in the KV cache (cached ones included).

    Attributes:
        elapsed_s: seconds since the request arrived at the worker.
        first, n_chunk: the step that ended now has computed so many tokens, from this one of the prompt on; 0 tokens
            where nothing was computed yet.
        began_s, took_s: when that step began, in seconds since the request arrived, and how long it took.
    """

    n_prompt: int
    n_cached: int
    n_done: int
    elapsed_s: float = 0.0
    first: int = 0
    n_chunk: int = 0
    began_s: float = 0.0
    took_s: float = 0.0


class Token(Event, frozen=True):
    """One generated token.

    Attributes:
        index: 0 for the first of the answer.
        token_id: id in the model's vocabulary.
        piece: its bytes; may be part of a character (base64 in JSON).
        text: visible text released by this token, after UTF-8 decoding and holding back of possible stop strings;
            often the piece, sometimes empty, sometimes more than one piece.
        channel: where `text` belongs: "text" or "reasoning".
        logprob: natural logarithm of the token's probability before any sampler (softmax of the raw logits);
            None if not asked for.
        time_s: seconds since the request arrived at the worker.
        drafted: it had been guessed, and was only checked (speculative decoding).
        n_rejected: guesses that this step had computed in vain.
        forced: it was not chosen: the answer was made to begin so. Such tokens are told before the prompt is read.
        detail: how it was chosen; None if not asked for.
    """

    index: int
    token_id: int
    piece: bytes
    text: str = ""
    channel: Literal["text", "reasoning"] = "text"
    logprob: float | None = None
    time_s: float = 0.0
    drafted: bool = False
    n_rejected: int = 0
    forced: bool = False
    detail: TokenDetail | None = None


class Done(Event, frozen=True):
    """The end of a generation; always the last event of its request unless an `Error` is.

    Attributes:
        text: the whole visible answer. It is authoritative: text shown so far is replaced by it (a late closing
            tag can turn shown text into reasoning).
        reasoning: thinking, without tags; `reasoning_tag` names its tag ("" if there was none), `reasoning_closed` is
            False if the answer ended inside it.
        stop_string: the stop text that matched, if one did.
        seed: the 32-bit seed that was used.
        n_dropped: messages left out because they no longer fit.
        notes: things the user should see, in words (folded roles, ignored text, unclosed thinking).
        usage, timings, reread: see their classes.
        marks: when what happened; end: the token that ended the answer, which is no text of it, if one did. None if no
            trace was asked for.
    """

    text: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    reasoning: str = ""
    reasoning_tag: str = ""
    reasoning_closed: bool = True
    reasoning_tokens: int = 0
    reasoning_s: float = 0.0
    stop_string: str = ""
    seed: int = 0
    n_dropped: int = 0
    notes: tuple[str, ...] = ()
    template_source: str = ""
    reread: Reread | None = None
    marks: Marks | None = None
    end: Token | None = None


class Error(Event, frozen=True):
    """An `EngineError`; ends its request."""

    error: ErrorInfo


class Memory(Event, frozen=True):
    """Memory of the worker, in bytes, and cells of its KV cache in use. Sent after a load and after each answer."""

    rss_bytes: int
    private_bytes: int = 0
    kv_used_cells: int = 0
    kv_total_cells: int = 0


class Log(Event, frozen=True):
    level: Literal["debug", "info", "warning", "error"]
    text: str
    source: str = "llama.cpp"


class Tokenized(Event, frozen=True):
    """Answer to `tokenize`. For messages `prompt` holds the rendered prompt. pieces[i] are the bytes of tokens[i]."""

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...] = ()
    prompt: str = ""
    n_dropped: int = 0


class LedgerSpan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of the context that serves one purpose.

    Attributes:
        kind: "system", "pinned" (any pinned message), "user", "assistant", "tool": text of a message; "template": what
            the chat template writes around it; "answer": room kept for the answer; "free": what is left.
        start, end: tokens of the prompt that would be sent, `end` excluded. Of a dropped stretch: where it would stand
            if nothing were left out.
        message: index of the message in the request, -1 for none.
        turn: number of the turn it belongs to, from 0; -1 for what belongs to none.
        dropped: it would be left out.
    """

    kind: Literal["system", "pinned", "user", "assistant", "tool", "template", "answer", "free"]
    start: int
    end: int
    message: int = -1
    turn: int = -1
    dropped: bool = False

    @property
    def n_tokens(self) -> int:
        return self.end - self.start


class ContextLedger(Event, frozen=True):
    """Answer to `Ledger`.

    Attributes:
        spans: in the order of the conversation. Those that are not dropped lie side by side, from 0 to n_ctx if the
            prompt fits, else to n_prompt.
        n_prompt: tokens that would be sent; n_whole: those of the whole conversation, nothing left out.
        n_ctx: tokens the context really holds.
        n_dropped: messages that would be left out.
        approximate: the template changes the texts, so that borders between messages may be off; the sums are not.
        notes: what would be changed in the conversation, in words.
        message_ids: id of each message of the request, 0 for one that is not stored; filled by the engine.
    """

    spans: tuple[LedgerSpan, ...]
    n_prompt: int
    n_whole: int
    n_ctx: int
    n_dropped: int = 0
    overflow: Overflow = "error"
    approximate: bool = False
    notes: tuple[str, ...] = ()
    message_ids: tuple[int, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether at least one token can follow the prompt."""
        return self.n_prompt < self.n_ctx


class BenchProgress(Event, frozen=True):
    """n_done of n_total tokens of a `Bench`. stage: "prefill" reads the prompts, "decode" writes the answers."""

    stage: Literal["prefill", "decode"]
    n_done: int
    n_total: int


class Benched(Event, frozen=True):
    """Answer to `bench`: tokens of all sequences together, and the seconds they took.

    Attributes:
        n_prefilled, prefill_s: all prompts, from the first step to the last.
        n_decoded, decode_s: only of the steps in which every answer was being written.
        llama_cpp: version of the build.
    """

    n_prefilled: int
    prefill_s: float
    n_decoded: int
    decode_s: float
    llama_cpp: str = ""


class AdaptersSet(Event, frozen=True):
    """Answer to `set_adapters`: all adapters of the model with the scales they have now."""

    adapters: tuple[Adapter, ...]


class Embedded(Event, frozen=True):
    """Answer to `embed`.

    Attributes:
        vectors: 32-bit floats, little-endian, one vector after the other (base64 in JSON).
        n_embd: numbers of one vector.
        n_tokens: of each text. With the pooling "none" there are that many vectors for it, else one.
        pooling: what was done in the end: "mean", "cls", "last", "none".
    """

    vectors: bytes
    n_embd: int
    n_tokens: tuple[int, ...]
    pooling: str
    normalized: bool


class Pong(Event, frozen=True):
    pass


WorkerEvent = (
    Hello
    | LoadProgress
    | Loaded
    | Unloaded
    | PromptProgress
    | PromptTrace
    | Token
    | Done
    | Error
    | Memory
    | Log
    | Tokenized
    | AdaptersSet
    | Embedded
    | ContextLedger
    | BenchProgress
    | Benched
    | KvMap
    | Pong
)
