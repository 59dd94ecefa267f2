"""Facts about this computer, the loaded model and the last answer, by the names that live sentences use.

A fact that is not known is absent, and with it every sentence that needs it. Nothing here asks anybody: what it takes
is handed in (see `gather.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from desktop import figures

if TYPE_CHECKING:
    from engine.cores import Cores
    from engine.events import Memory, ModelInfo, Tokenized
    from engine.hardware import Ram
    from engine.message import GenerationRecord
    from engine.models.gguf_header import GgufHeader
    from engine.settings import Settings

Facts = dict[str, str]

EXAMPLE = "The fireplace crackled unbelievably"
#: facts that only an answer brings
OF_ANSWERS = frozenset(
    (
        *("accepted", "passes", "cached_tokens", "completion_tokens", "decode_tps", "drafted"),
        *("finish", "fresh_tokens", "n_dropped", "prefill_s", "prefill_tps", "prompt_tokens"),
        *("queue_s", "reread_cause", "reread_tokens", "restored_tokens", "seed", "shifted_tokens"),
        *("step_ms", "template_s", "traffic", "ttft"),
    )
)
_VERDICTS = {
    "gpu": "all of it fits on the GPU",
    "split": "a part of it is on the GPU, the rest in main memory",
    "cpu": "it is computed by the processor, from main memory",
    "too_large": "it needs more memory than was free",
}
_OVERFLOW = {
    "drop_oldest": "leave out the oldest turns before an answer",
    "roll": "leave out the oldest turns, in the middle of an answer too",
    "error": "refuse the answer",
}
_FINISH = {"stop": "the model ended it", "length": "a limit was reached", "cancelled": "you stopped it"}
_REREAD = {
    "changed": "the text before is another one",
    "tokens": "the same text is cut into other tokens",
    "thinking": "earlier thinking is left out",
    "dropped": "older turns were left out",
    "window": "the sliding window does not reach back that far",
    "state": "the recurrent state cannot go back",
    "given_up": "other chats needed the room",
    "stopped": "computing was interrupted",
}
_TEMPLATES = {
    "file": "the chat template of its own file is used",
    "guess": "a built-in chat template is used, guessed from its tokens",
    "fallback": "a plain built-in chat template is used, because its own does not work",
    "user": "the chat template that you gave is used",
}


@dataclass(frozen=True)
class Known:
    """What the facts are made of; None: not known (yet).

    Attributes:
        name: what the model is called on screen.
        worker: resident and private bytes of the model's process, just measured.
        example: `EXAMPLE` as the model cuts it.
        headers: of the model's files.
    """

    model: ModelInfo | None = None
    name: str = ""
    memory: Memory | None = None
    record: GenerationRecord | None = None
    settings: Settings | None = None
    headers: tuple[GgufHeader, ...] = ()
    example: Tokenized | None = None
    ram: Ram | None = None
    cores: Cores | None = None
    worker: tuple[int, int] | None = None


def facts_of(known: Known) -> Facts:
    """All facts that are known, as words and figures."""
    facts: Facts = {}
    if known.model is not None:
        facts |= _of_model(known.model, known.name)
        facts |= _of_fit(known.model)
        if known.headers:
            facts |= _of_file(known.headers, known.model)
        if known.memory is not None:
            facts |= _of_memory(known.memory, known.model, known.headers)
        if known.worker is not None:
            facts |= _of_process(*known.worker)
        if known.example is not None:
            facts |= _of_example(known.example)
    if known.record is not None:
        facts |= _of_answer(known.record)
    if known.settings is not None:
        facts |= _of_settings(known.settings)
    if known.ram is not None:
        facts["ram_total"] = figures.size(known.ram.total_bytes)
        facts["ram_free"] = figures.size(known.ram.available_bytes)
    if known.cores is not None:
        facts["cores"] = str(known.cores.physical)
    if known.model is not None and known.record is not None and "n_expert" not in facts:
        facts |= _of_traffic(known.model, known.record)
    return facts


# ------------------------------------------------------------------ the model


def _sum(model: ModelInfo, kind: str) -> int:
    """Bytes of all buffers of a kind, on all devices."""
    return sum(size for name, size in model.buffers.items() if name.rsplit(" ", 1)[-1] == kind)


def _of_model(model: ModelInfo, name: str) -> Facts:
    facts = {
        "model": name or model.name,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "params": _round(model.n_params),
        "file_size": figures.size(model.size_bytes),
        "n_slots": str(model.n_slots),
        "backends": ", ".join(model.backends),
        "flash_attention": {"on": "on", "off": "off"}.get(model.flash_attention, "left to llama.cpp"),
        "template": _TEMPLATES.get(model.template.source, ""),
        "thinking_tag": model.template.thinking_tag,
        "kv_type_k": model.kv_type_k.upper(),
        "kv_type_v": model.kv_type_v.upper(),
        "n_eog": str(len(model.eog_tokens)) if model.eog_tokens else "",
        "bos": str(model.bos_token) if model.bos_token >= 0 else "",
        "adapters": str(len(model.adapters)) if model.adapters else "",
        "n_threads": str(model.n_threads) if model.n_threads else "",
        "n_threads_batch": str(model.n_threads_batch or model.n_threads) if model.n_threads else "",
        "pooling": model.pooling,
        "embedding_size": figures.count(model.n_embd) if model.embeddings else "",
    }
    for field in ("n_params", "n_ctx", "n_ctx_train", "n_vocab", "n_layer", "n_embd", "n_batch", "n_ubatch"):
        value = getattr(model, field)
        facts[field] = figures.count(value) if value else ""
    if model.n_params:
        facts["size_f16"] = figures.size(model.n_params * 2)
    weights, compute = _sum(model, "model"), _sum(model, "compute")
    facts["weights_bytes"] = figures.size(weights or model.size_bytes or None)
    if compute:
        facts["compute_bytes"] = figures.size(compute)
    if model.kv_bytes:
        facts["kv_bytes"] = figures.size(model.kv_bytes)
    facts |= _of_devices(model)
    return {key: value for key, value in facts.items() if value and value != figures.DASH}


def _of_devices(model: ModelInfo) -> Facts:
    gpus = [device for device in model.devices if device.kind in ("gpu", "igpu")]
    facts: Facts = {}
    if model.n_gpu_layers <= 0 and model.n_layer:
        facts["n_layers_cpu"] = str(model.n_layer + 1)
    if gpus:
        # llama.cpp counts the output layer as one more
        facts["n_gpu_layers"], facts["n_layers_all"] = str(model.n_gpu_layers), str(model.n_layer + 1)
        told = next((device for device in gpus if device.memory_total_bytes > 0), None)
        if told is not None:
            facts["gpu_name"] = told.description or told.name
            facts["gpu_free"] = figures.size(told.memory_free_bytes)
            facts["gpu_total"] = figures.size(told.memory_total_bytes)
    return facts


def _of_fit(model: ModelInfo) -> Facts:
    fit = model.fit
    if fit is None:
        return {}
    facts: Facts = {}
    if fit.verdict in _VERDICTS:
        facts["fit_verdict"] = _VERDICTS[fit.verdict]
    if fit.decode_tps_high > 0:
        low, high = figures.rate(fit.decode_tps_low), figures.rate(fit.decode_tps_high)
        facts["speed_range"] = low if low == high else f"{low} to {high}"
    gpus = [device for device in fit.devices if device.name != "Host"]
    counted = gpus or list(fit.devices)
    predicted = sum(d.weights_bytes + d.kv_bytes + d.compute_bytes for d in counted)
    parts = [(d.measured_weights_bytes, d.measured_kv_bytes, d.measured_compute_bytes) for d in counted]
    if fit.error is not None and counted and all(part is not None for three in parts for part in three):
        facts["predicted_bytes"] = figures.size(predicted)
        facts["measured_bytes"] = figures.size(sum(part or 0 for three in parts for part in three))
        facts["fit_error"] = f"{abs(fit.error):.1%}".replace("%", " %")
    return facts


def _round(n_params: int) -> str:
    """ "8.0 billion", "135 million"."""
    if n_params >= 1_000_000_000:
        return f"{n_params / 1e9:.1f} billion"
    if n_params >= 1_000_000:
        return f"{n_params / 1e6:.0f} million"
    return figures.count(n_params) if n_params else ""


# ------------------------------------------------------------------ its file


def _of_file(headers: Sequence[GgufHeader], model: ModelInfo) -> Facts:
    from engine.models import quant

    first = headers[0]
    arch = first.of_architecture
    tensors = [tensor for header in headers for tensor in header.tensors]
    facts: Facts = {"n_tensors": figures.count(len(tensors)), "n_metadata": figures.count(len(first.metadata))}
    numbers = {
        "n_head": "attention.head_count",
        "n_head_kv": "attention.head_count_kv",
        "n_ff": "feed_forward_length",
        "n_expert": "expert_count",
        "n_expert_used": "expert_used_count",
        "sliding_window": "attention.sliding_window",
    }
    for name, key in numbers.items():
        value = arch(key)
        if value:
            facts[name] = figures.count(value)
    facts["tokenizer"] = first.text("tokenizer.ggml.model")
    base = first.metadata.get(f"{first.architecture}.rope.freq_base")
    if isinstance(base, int | float) and base > 0:
        facts["rope_base"] = f"{base:,.0f}"
    sizes: Counter[int] = Counter()
    for tensor in tensors:
        sizes[tensor.type] += tensor.n_bytes
    total, n_weights = sum(sizes.values()), sum(tensor.n_elements for tensor in tensors)
    if total and n_weights:
        bits = total * 8 / n_weights
        facts["weights_bits"] = f"{bits:.2f}"
        facts["weights_ideal"] = figures.size(round(n_weights * bits / 8))
        shares = [(quant.tensor_type_name(kind), size / total) for kind, size in sizes.most_common(4)]
        facts["types"] = ", ".join(f"{name} {_share(share)}" for name, share in shares)
    return {key: value for key, value in facts.items() if value}


def _share(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.005 else "below 1 %"


def _is_even(headers: Sequence[GgufHeader]) -> bool:
    """Whether every token takes the same room in the cache: no sliding window, no recurrent layers."""
    first = headers[0]
    return not any(
        first.of_architecture(key) for key in ("attention.sliding_window", "ssm.state_size", "wkv.head_size")
    )


# ------------------------------------------------------------------ what happens


def _of_memory(memory: Memory, model: ModelInfo, headers: Sequence[GgufHeader]) -> Facts:
    facts: Facts = {}
    if memory.kv_total_cells > 0:
        facts["kv_used"] = figures.count(memory.kv_used_cells)
        if model.kv_bytes and headers and _is_even(headers):
            facts["kv_used_bytes"] = figures.size(model.kv_bytes * memory.kv_used_cells // memory.kv_total_cells)
            facts["kv_per_token"] = f"{model.kv_bytes / memory.kv_total_cells / 1024:.1f} KiB"
    return facts


def _of_process(rss_bytes: int, private_bytes: int) -> Facts:
    facts = {"worker_rss": figures.size(rss_bytes)}
    if 0 < private_bytes <= rss_bytes:
        facts["worker_private"] = figures.size(private_bytes)
        facts["mapped_bytes"] = figures.size(rss_bytes - private_bytes)
    return facts


def _of_example(example: Tokenized) -> Facts:
    pieces = [piece.decode("utf-8", "replace") for piece in example.pieces]
    if not pieces:
        return {}
    # the space before a word belongs to its token, and would be lost between the dots
    shown = " · ".join(piece.replace(" ", "␣") for piece in pieces if piece)
    return {"example_text": EXAMPLE, "example_n": str(len(example.tokens)), "example_pieces": shown}


def _of_answer(record: GenerationRecord) -> Facts:
    if record.finish_reason is None:
        return {}
    usage, timings = record.usage, record.timings
    facts: Facts = {
        "finish": _FINISH.get(record.finish_reason, ""),
        "prompt_tokens": figures.count(usage.prompt_tokens) if usage.prompt_tokens else "",
        "completion_tokens": figures.count(usage.completion_tokens),
        "cached_tokens": figures.count(usage.cached_tokens),
        "fresh_tokens": figures.count(max(0, usage.prompt_tokens - usage.cached_tokens)),
        "ttft": _time(timings.ttft_s),
        "queue_s": _time(timings.queue_s),
        "template_s": _time(timings.template_s),
        "prefill_s": _time(timings.prefill_s),
        "prefill_tps": figures.rate(timings.prefill_tps),
        "decode_tps": figures.rate(timings.decode_tps),
        "step_ms": f"{1000 / timings.decode_tps:.0f} ms" if timings.decode_tps else "",
        "seed": str(record.sampling.seed) if record.sampling.seed is not None else "",
        "n_dropped": str(record.n_dropped) if record.n_dropped else "",
        "shifted_tokens": figures.count(usage.shifted_tokens) if usage.shifted_tokens else "",
        "restored_tokens": figures.count(usage.restored_tokens) if usage.restored_tokens else "",
    }
    if record.finish_reason == "stop" and record.stop_string:
        facts["finish"] = f"the stop text “{record.stop_string[:24]}” came"
    if usage.drafted_tokens:
        facts["drafted"], facts["accepted"] = figures.count(usage.drafted_tokens), figures.count(usage.accepted_tokens)
    if record.reread is not None:
        facts["reread_tokens"] = figures.count(record.reread.n_tokens)
        facts["reread_cause"] = _REREAD.get(record.reread.cause, "")
    return {key: value for key, value in facts.items() if value and value != figures.DASH}


def _time(value_s: float | None) -> str:
    """Short times in milliseconds, so that a small one is not shown as none."""
    if value_s is not None and 0 <= value_s < 0.1:
        return f"{value_s * 1000:.0f} ms" if value_s >= 0.001 else "less than 1 ms"
    return figures.seconds(value_s)


def _of_settings(settings: Settings) -> Facts:
    sampling = settings.sampling
    facts: Facts = {}
    for field in sampling.__struct_fields__:
        value = getattr(sampling, field)
        if isinstance(value, int | float):
            facts[f"sampling_{field}"] = f"{value:g}"
    facts["sampling_mirostat"] = f"version {sampling.mirostat}" if sampling.mirostat else "off"
    facts["sampling_max_tokens"] = f"{sampling.max_tokens:,} tokens" if sampling.max_tokens else "no limit"
    facts["sampling_stop"] = ", ".join(f"“{text}”" for text in sampling.stop) or "none"
    facts["overflow"] = _OVERFLOW.get(settings.overflow, "")
    facts["speculate"] = "on" if settings.speculate else "off"
    facts["kv_on_disk"] = "switched on" if settings.kv_on_disk else "switched off"
    facts["kv_disk_gib"] = f"{settings.kv_disk_gib:g} GiB"
    return facts


def _of_traffic(model: ModelInfo, record: GenerationRecord) -> Facts:
    """Bytes of weights that came from memory in a second of the last answer; none where a
    token may need only a part of them."""
    rate, weights = record.timings.decode_tps, _sum(model, "model")
    same = record.model_path in ("", model.path)
    if not rate or not weights or not same:
        return {}
    # right guesses came out of the same pass as the token before them
    passes = rate * (1 - record.usage.accepted_tokens / max(1, record.usage.completion_tokens))
    return {"passes": f"{passes:.1f}", "traffic": f"{passes * weights / 1e9:.1f} GB"}
