"""Which term of the glossary explains what: sampling parameters, options of a load, kinds of memory and of context.

Names on the left are those of the code that shows them; a test holds that every one has a term that exists.
"""

from __future__ import annotations

#: fields of `SamplingParams`
SAMPLING: dict[str, str] = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "top_n_sigma": "top_n_sigma",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "penalty_window",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "dry_multiplier": "dry",
    "dry_base": "dry",
    "dry_allowed_length": "dry",
    "dry_penalty_last_n": "dry",
    "dry_sequence_breakers": "dry",
    "xtc_probability": "xtc",
    "xtc_threshold": "xtc",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat",
    "mirostat_eta": "mirostat",
    "logit_bias": "logit_bias",
    "max_tokens": "max_tokens",
    "stop": "stop_string",
    "seed": "seed",
}

#: fields of `EngineOptions`
OPTIONS: dict[str, str] = {
    "n_ctx": "context_window",
    "n_gpu_layers": "offload",
    "n_cpu_moe": "cpu_moe",
    "tensor_split": "tensor_split",
    "n_slots": "slot",
    "n_threads": "threads",
    "n_threads_batch": "threads",
    "n_batch": "batch",
    "n_ubatch": "ubatch",
    "flash_attention": "flash_attention",
    "kv_type_k": "kv_type",
    "kv_type_v": "kv_type",
    "swa_full": "sliding_window",
    "offload_kqv": "kv_offload",
    "op_offload": "op_offload",
    "use_mmap": "mmap",
    "use_mlock": "mlock",
    "adapters": "lora",
}

#: settings that are not options of a load
SETTINGS: dict[str, str] = {
    "kv_on_disk": "kv_on_disk",
    "kv_disk_gib": "kv_on_disk",
    "speculate": "speculative_decoding",
    "system_prompt": "system_prompt",
    "overflow": "dropped_turns",
    "trace": "trace",
}

#: kinds of `memory_bar.KINDS`
MEMORY: dict[str, str] = {
    "weights": "weights",
    "kv": "kv_cache",
    "compute": "compute_buffer",
    "other": "headroom",
    "free": "headroom",
}

#: kinds of `context_bar.KINDS`
CONTEXT: dict[str, str] = {
    "system": "system_prompt",
    "dropped": "dropped_turns",
    "pinned": "pinned_message",
    "history": "prompt",
    "draft": "prompt",
    "written": "decode",
    "answer": "max_tokens",
    "free": "context_window",
}

#: figures of the strip under the chat
STATUS: dict[str, str] = {
    "ttft": "ttft",
    "prefill": "prefill",
    "decode": "decode",
    "window": "rss",
    "worker": "rss",
}
