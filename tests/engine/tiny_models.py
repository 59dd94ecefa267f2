"""Small GGUF files made with the gguf package: LoRA adapters for a real model, an embedding model of random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

from engine.models.gguf import read_header


def lora(
    path: Path,
    model: Path,
    *,
    targets: Sequence[str] = (),
    rank: int = 4,
    size: float = 0.0,
    alpha: float = 4.0,
    seed: int = 1,
    architecture: str = "",
    widen: int = 0,
    name: str = "tiny",
) -> Path:
    """An adapter for a model.

    Args:
        targets: names of the matrices it changes; empty: the queries and the wide ones of all layers.
        size: spread of B; 0: no effect at all.
        architecture: another one than the model's. widen: every input so much wider than the model's.
    """
    header = read_header(model, max_array=64)
    dims = {tensor.name: tensor.dims for tensor in header.tensors}
    wanted = targets or [n for n in dims if n.endswith(("attn_q.weight", "ffn_up.weight", "ffn_down.weight"))]
    writer = gguf.GGUFWriter(path, architecture or header.architecture)
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    random = np.random.default_rng(seed)
    for target in wanted:
        n_in, n_out = dims[target][:2]
        a = random.normal(0, 1 / np.sqrt(n_in), (rank, n_in + widen)).astype(np.float32)
        b = (random.normal(0, 1, (n_out, rank)) * size).astype(np.float32)
        writer.add_tensor(f"{target}.lora_a", a)
        writer.add_tensor(f"{target}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


WORDS = ("the", "cat", "dog", "sat", "ran", "on", "mat", "moon", "red", "blue", "##s", "##ing")


def bert(path: Path, *, width: int = 32, n_layer: int = 2, context: int = 64, pooling: int | None = 1) -> Path:
    """An embedding model: a tiny BERT of random weights. pooling: as llama.cpp numbers it; None: it says nothing."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [word if word.startswith("##") else f"\u2581{word}" for word in WORDS]
    tokens = [token.removeprefix("##") for token in tokens]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("Tiny BERT")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(2 * width)
    writer.add_block_count(n_layer)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_uint32("bert.pooling_type", pooling)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 2, 3, 3, 3] + [1] * len(WORDS))
    writer.add_token_type_count(2)
    for role, number in (("padding", 0), ("unknown", 1), ("bos", 2), ("seperator", 3), ("mask", 4)):
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", number)
    random = np.random.default_rng(3)

    def add(name: str, *shape: int, base: float = 0.0) -> None:
        writer.add_tensor(name, (base + random.normal(0, 0.3, shape)).astype(np.float32))

    add("token_embd.weight", len(tokens), width)
    add("token_types.weight", 2, width)
    add("position_embd.weight", context, width)
    norms = ["token_embd_norm"]
    for layer in range(n_layer):
        block = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}.{part}.weight", width, width)
            add(f"{block}.{part}.bias", width)
        add(f"{block}.ffn_up.weight", 2 * width, width)
        add(f"{block}.ffn_up.bias", 2 * width)
        add(f"{block}.ffn_down.weight", width, 2 * width)
        add(f"{block}.ffn_down.bias", width)
        norms += [f"{block}.attn_output_norm", f"{block}.layer_output_norm"]
    for name in norms:
        add(f"{name}.weight", width, base=1.0)
        add(f"{name}.bias", width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
