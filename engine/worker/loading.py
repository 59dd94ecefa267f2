"""From a `Load` request to a loaded model and what is told about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from engine import backend_words, cores, events
from engine.chat import template as templates
from engine.errors import Cancelled, EngineError, InvalidRequest, ModelNotFound
from engine.fit import embedding_sizes, load_checks
from engine.fit.machine import lock_limit
from engine.fit.placement import prepare
from engine.worker import backends, crumbs, devices, hooks, native_log
from engine.worker import draft as drafts
from engine.worker.draft import DraftModel
from engine.worker.embedding import Embedder
from engine.worker.llama import Interrupt, LlamaModel
from engine.worker.load_options import kv_type
from engine.worker.prompt import PromptBuilder
from engine.worker.protocol import Load

DEFAULT_CONTEXT = 8192
#: llama.cpp keeps some 50 bytes a cell in ordinary memory, whatever the model
_MAX_CONTEXT = 2**24
_MAX_SLOTS = 64
_PROGRESS_EVERY_S = 1 / 30


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for work.

    Attributes:
        prompts: builds prompts that fit the context.
        embedder: where it was loaded for embeddings, and then it does nothing else.
        draft: a small model beside it that guesses ahead.
    """

    llama: LlamaModel
    info: events.ModelInfo
    prompts: PromptBuilder
    embedder: Embedder | None = None
    draft: DraftModel | None = None

    def close(self) -> None:
        """Free everything."""
        if self.embedder is not None:
            self.embedder.close()
        if self.draft is not None:
            self.draft.close()
        self.llama.close()


def load(
    request: Load,
    *,
    log: native_log.NativeLog,
    interrupt: Interrupt,
    stopped: Callable[[], bool],
    send: Callable[[events.Event], None],
) -> LoadedModel:
    """Check the file, load it, and describe it.

    Raises:
        InvalidRequest, ModelNotFound, NotAModel, ModelFileDamaged, UnsupportedModel, NotEnoughMemory, LoadFailed.
        Cancelled: `stopped` said so.
    """
    began = time.perf_counter()
    _validate(request)
    if not os.path.exists(request.path):  # noqa: PTH110 (a path is not always what pathlib thinks it is)
        raise ModelNotFound(f"There is no file {request.path}", details={"path": request.path})
    request = _prepared(request)
    problems = [*backend_words.broken(backends.current().add_ons), *devices.add_rpc_servers()]
    registry = devices.devices()
    gpus = devices.gpu_names(registry)
    wanted_layers = request.n_gpu_layers
    if wanted_layers is None:
        wanted_layers = -1 if gpus else 0
    llama = LlamaModel.load(
        request,
        n_ctx=lambda trained: request.n_ctx or min(trained, DEFAULT_CONTEXT),
        n_gpu_layers=wanted_layers,
        interrupt=interrupt,
        log=log,
        progress=_progress(request.id, stopped, send),
    )
    try:
        if stopped():
            raise Cancelled("The load was stopped")
        guesser = None
        if request.draft_path and not request.embeddings:
            try:
                guesser = drafts.load(request, llama, interrupt, log, stopped)
            except Cancelled:
                raise
            except EngineError as error:
                problems.append(drafts.warning(request.draft_path, error))
        return replace(_describe(request, llama, registry, problems, began), draft=guesser)
    except BaseException:
        llama.close()
        raise


def _prepared(request: Load) -> Load:
    """The request after a look at its files, with what is left to the worker filled in.

    Raises:
        the errors of `load_checks.check`.
    """
    header, more = load_checks.check(request)
    threads = request.n_threads or cores.here().threads
    request = msgspec.structs.replace(
        request,
        n_threads=threads,
        n_threads_batch=request.n_threads_batch or threads,
        # every answer that is being written has a token in each batch, and llama.cpp aborts on longer ones
        n_batch=max(request.n_batch, request.n_slots),
    )
    return embedding_sizes.sized(request, prepare(header, more).shape) if request.embeddings else request


def _validate(request: Load) -> None:
    limits = {
        "n_ctx": (1, _MAX_CONTEXT, request.n_ctx),
        "n_gpu_layers": (-1, 10_000, request.n_gpu_layers),
        "n_batch": (1, 1 << 20, request.n_batch),
        "n_ubatch": (1, 1 << 20, request.n_ubatch),
        "n_slots": (1, _MAX_SLOTS, request.n_slots),
        "n_threads": (1, 1024, request.n_threads),
        "n_threads_batch": (1, 1024, request.n_threads_batch),
        "n_cpu_moe": (0, 10_000, request.n_cpu_moe),
    }
    for field, (low, high, value) in limits.items():
        if value is not None and not low <= value <= high:
            raise InvalidRequest(f"{field} must be between {low} and {high}, not {value}", details={"field": field})
    kv_type(request.kv_type_k, "kv_type_k")
    kv_type(request.kv_type_v, "kv_type_v")
    if any(not 0 <= share < 1e9 for share in request.tensor_split):
        raise InvalidRequest("tensor_split must be numbers from 0 up", details={"field": "tensor_split"})
    if not request.path or "\0" in request.path:
        raise InvalidRequest("path must name a file", details={"field": "path"})


def _progress(
    request_id: str, stopped: Callable[[], bool], send: Callable[[events.Event], None]
) -> Callable[[float], bool]:
    """Reports at most thirty times a second, the end always and once, and passes a stop on."""
    last, ended = 0.0, False
    hooks.load_started()

    def report(fraction: float) -> bool:
        nonlocal last, ended
        crumbs.note("weights", fraction)
        now = time.perf_counter()
        if not ended and (fraction >= 1 or now - last >= _PROGRESS_EVERY_S):
            last, ended = now, fraction >= 1
            send(events.LoadProgress(request_id=request_id, fraction=min(1.0, fraction)))
        hooks.loading(fraction, stopped)
        return not stopped()

    return report


def _describe(
    request: Load, llama: LlamaModel, registry: tuple[events.Device, ...], problems: list[str], began: float
) -> LoadedModel:
    facts = llama.facts()
    name = llama.metadata("general.name") or Path(request.path).stem
    chat_template = templates.choose(
        llama.chat_template(),
        user_template=request.chat_template,
        special_tokens=llama.vocab.control_texts,
        bos=llama.vocab.bos_text,
        eos=llama.vocab.eos_text,
        unk=llama.metadata_token("unknown"),
        pad=llama.metadata_token("padding"),
        name=f"{name} {facts['architecture']}",
    )
    embedder = Embedder(llama) if request.embeddings else None
    gpus = devices.gpu_names(registry)
    on_gpu = native_log.layers_on(llama.lines, gpus)
    sizes = native_log.buffer_sizes(llama.lines)
    k_bytes, v_bytes = native_log.cache_sizes(llama.lines)
    info = events.ModelInfo(
        path=request.path,
        name=name,
        n_gpu_layers=on_gpu,
        layer_devices=native_log.layer_devices(llama.lines),
        n_cpu_moe=native_log.experts_kept(llama.lines),
        template=chat_template.info,
        flash_attention=native_log.flash_attention(llama.lines),
        kv_bytes=sum(size for key, size in sizes.items() if key.endswith((" KV", " RS"))),
        kv_k_bytes=k_bytes,
        kv_v_bytes=v_bytes,
        buffers=sizes,
        backends=_backends_used(sizes, registry),
        load_s=time.perf_counter() - began,
        devices=devices.devices(),
        kv_type_k=request.kv_type_k,
        kv_type_v=request.kv_type_v,
        adapters=llama.adapters.current,
        embeddings=request.embeddings,
        pooling=(embedder and embedder.own) or "",
        cpu_module=backends.current().cpu_module,
        add_ons=tuple(backends.current().add_ons),
        warnings=(*problems, *_warnings(request, llama, facts["n_ctx_train"], on_gpu, bool(gpus))),
        **facts,
    )
    return LoadedModel(llama, info, PromptBuilder(chat_template, llama.vocab, llama.n_ctx), embedder)


def _backends_used(sizes: dict[str, int], registry: tuple[events.Device, ...]) -> tuple[str, ...]:
    """Backends of the devices that hold a buffer. "CPU_Mapped" and the like belong to the CPU."""
    used: list[str] = []
    holders = {key.rsplit(" ", 1)[0] for key in sizes}
    for device in registry:
        if device.backend not in used and any(h.startswith(device.name) for h in holders):
            used.append(device.backend)
    return tuple(used)


def _warnings(request: Load, llama: LlamaModel, n_ctx_train: int, on_gpu: int, has_gpu: bool) -> list[str]:
    found = [native_log.NOT_LOCKED.format(_lock_limit())] if native_log.not_locked(llama.lines) else []
    if request.n_ctx and request.n_ctx > n_ctx_train:
        found.append(
            f"The context of {llama.n_ctx} tokens is longer than the {n_ctx_train} that the model was trained with; "
            "answers may get worse beyond that."
        )
    elif request.n_ctx and request.n_ctx > llama.n_ctx:
        found.append(f"The context holds {llama.n_ctx} tokens, not the {request.n_ctx} asked for.")
    wished = request.n_gpu_layers or 0
    if wished and not has_gpu:
        found.append("No GPU can be used here; all layers are on the CPU.")
    elif wished > 0 and on_gpu < min(wished, request.n_gpu_layers or 0):
        found.append(f"{on_gpu} layers are on the GPU, not the {wished} asked for.")
    return found


def _lock_limit() -> str:
    """Why the weights could not be locked, as far as it can be told."""
    limit = lock_limit()
    if limit is None:
        return "the system has too little memory for it, or does not allow it"
    return f"this user may lock {limit / 2**20:,.0f} MiB (ulimit -l)"
