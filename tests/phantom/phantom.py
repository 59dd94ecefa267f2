# ruff: noqa
"""phantom.py - writes 'phantom' GGUF files: real hyper-parameters, real tensor names, shapes and quantization types, but a
hole where the weights would be.  A '40 GB' model takes a few MB of disk (the header with a dummy vocabulary of the right
size); every tool that only looks at metadata and tensor infos (llama-fit-params, a memory planner) sees the full model.

    python phantom.py NAME OUT.gguf [--quant Q4_K_M]
    python phantom.py --list
    from phantom import build, MODELS;  build("llama-3.1-8b", "x.gguf", "Q4_K_M")

Only the standard library is needed.  The tensor types follow llama.cpp's quantization rules (see quant_types; checked
against 'llama-quantize --dry-run' by check_quant.py)."""

import argparse, math, os, re, struct, sys

# ---------------------------------------------------------------- ggml types: id, block size, bytes per block
GGML = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18),
    "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136),
    "IQ1_M": (29, 256, 56),
    "BF16": (30, 1, 2),
    "MXFP4": (39, 32, 17),
}

# llama_ftype: number (general.file_type), default tensor type
FTYPE = {
    "F32": (0, "F32"),
    "F16": (1, "F16"),
    "Q4_0": (2, "Q4_0"),
    "Q4_1": (3, "Q4_1"),
    "Q8_0": (7, "Q8_0"),
    "Q5_0": (8, "Q5_0"),
    "Q5_1": (9, "Q5_1"),
    "Q2_K": (10, "Q2_K"),
    "Q3_K_S": (11, "Q3_K"),
    "Q3_K_M": (12, "Q3_K"),
    "Q3_K_L": (13, "Q3_K"),
    "Q4_K_S": (14, "Q4_K"),
    "Q4_K_M": (15, "Q4_K"),
    "Q5_K_S": (16, "Q5_K"),
    "Q5_K_M": (17, "Q5_K"),
    "Q6_K": (18, "Q6_K"),
    "IQ3_XXS": (23, "IQ3_XXS"),
    "IQ4_NL": (25, "IQ4_NL"),
    "IQ3_S": (26, "IQ3_S"),
    "IQ3_M": (27, "IQ3_S"),
    "IQ4_XS": (30, "IQ4_XS"),
    "IQ3_XS": (22, "IQ3_S"),
    "Q2_K_S": (21, "Q2_K"),
    "IQ2_M": (29, "IQ2_S"),
    "IQ2_XXS": (19, "IQ2_XXS"),
    "BF16": (32, "BF16"),
    "MXFP4_MOE": (38, "MXFP4"),
}


def tensor_bytes(typ, shape):
    _, blck, size = GGML[typ]
    n = 1
    for d in shape:
        n *= d
    assert shape[0] % blck == 0, (typ, shape)
    return n // blck * size


# ---------------------------------------------------------------- the model under construction
class Model:
    def __init__(self, arch, name, n_vocab, tok="gpt2", pre="default", **kv):
        self.arch, self.name, self.n_vocab, self.tok, self.pre = arch, name, n_vocab, tok, pre
        self.kv = {}
        self.tensors = []  # (name, shape in ggml order, type before quantization)
        self.hint = {}  # values the quantization rules need
        self.set(**kv)

    def set(self, **kv):
        """architecture keys; '__' stands for '.', e.g. attention__head_count"""
        for k, v in kv.items():
            self.kv[f"{self.arch}.{k.replace('__', '.')}"] = v

    def t(self, name, *shape, typ=None):
        if typ is None:  # the same rules as the converter's prepare_tensors
            f32 = (
                len(shape) <= 1
                or name.endswith("_norm.weight")
                or not name.endswith(".weight")
                or re.search(
                    r"ffn_gate_inp(_shexp)?\.weight|position_embd|token_types|ssm_conv1d|shortconv\.conv\.|"
                    r"altup_(correct|predict)_coef",
                    name,
                )
            )
            typ = "F32" if f32 else "F16"
        self.tensors.append((name, tuple(shape), typ))

    def b(self, i, name, *shape, typ=None):
        self.t(f"blk.{i}.{name}", *shape, typ=typ)


# ---------------------------------------------------------------- quantization rules (llama-quant.cpp, no imatrix)
def quant_types(m, quant):
    """[(name, shape, type)] after llama-quantize of an F16 file to `quant`"""
    ftype, default = quant, FTYPE[quant][1]
    if quant in ("F16", "F32", "BF16"):
        return [(n, s, default if (t == "F16") else t) for n, s, t in m.tensors]

    def key(n):
        x = re.match(r"blk\.(\d+)\.", n)
        return (int(x.group(1)) if x else -1, n)

    order = sorted(m.tensors, key=lambda x: key(x[0]))
    n_layer = m.kv[f"{m.arch}.block_count"]
    n_expert = m.kv.get(f"{m.arch}.expert_count", 0)
    n_gqa, is70b = m.hint.get("n_gqa", 1), m.hint.get("is_70b", False)
    tied = not any(n == "output.weight" for n, _, _ in order)

    def cat(n):
        if n == "output.weight":
            return "OUTPUT"
        if n in ("token_embd.weight", "per_layer_token_embd.weight"):
            return "EMBD"
        for s, c in (
            ("attn_qkv.weight", "QKV"),
            ("attn_kv_b.weight", "KV_B"),
            ("attn_v.weight", "V"),
            ("attn_k.weight", "K"),
            ("attn_q.weight", "Q"),
            ("attn_output.weight", "O"),
            ("ffn_up", "UP"),
            ("ffn_gate", "GATE"),
            ("ffn_down", "DOWN"),
        ):
            if s in n:
                return c
        return "OTHER"

    n_wv = sum(cat(n) in ("V", "QKV", "KV_B") for n, _, _ in order)
    i_wv = i_down = i_gate = i_up = 0

    def more_bits(i, n):
        return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2

    def allowed(n, s):
        dims = len(s)
        while dims > 1 and s[dims - 1] == 1:
            dims -= 1
        if dims < 2 or not n.endswith("weight") or "_norm.weight" in n:
            return False
        if re.search(
            r"ffn_gate_inp\.weight|altup|laurel|per_layer_model_proj|ssm_conv1d|shortconv\.conv\.weight|attn_rel_b\.weight",
            n,
        ):
            return False
        return n not in ("position_embd.weight", "token_types.weight")

    out = {}
    for n, s, t in order:
        if not allowed(n, s):
            out[n] = t
            continue
        c, new = cat(n), default
        layer = key(n)[0]
        il = lambda i: layer if n_expert > 1 else i
        q = ftype
        if c == "OUTPUT" or (tied and c == "EMBD"):
            if q == "MXFP4_MOE" or s[0] % GGML[new][1] != 0:
                new = "Q8_0"
            elif q in ("IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"):
                new = "Q5_K"
            elif new != "Q8_0":
                new = "Q6_K"
        elif q == "MXFP4_MOE":
            new = "MXFP4" if len(s) > 2 and s[2] > 1 else "Q8_0"
        elif c == "EMBD":
            if q in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
                new = "Q2_K"
            elif q in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
                new = "IQ3_S"
        elif q in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"):
            mid = q in ("IQ2_S", "IQ2_M")
            if c in ("V", "QKV", "KV_B"):
                new = "Q4_K" if n_gqa >= 4 or n_expert >= 4 else ("IQ3_S" if mid else "Q2_K")
                i_wv += 1
            elif n_expert == 8 and c == "K":
                new = "Q4_K"
            elif c == "DOWN":
                if i_down < n_layer // 8:
                    new = "IQ3_S" if mid else "Q2_K"
                i_down += 1
            elif c == "O":
                if n_expert == 8:
                    new = "Q5_K"
                elif q in ("IQ1_S", "IQ1_M"):
                    new = "IQ2_XXS"
                elif mid:
                    new = "IQ3_S"
        elif c in ("V", "QKV", "KV_B"):
            if q == "Q2_K":
                new = "Q4_K" if n_gqa >= 4 else "Q3_K"
            elif q == "Q2_K_S" and n_gqa >= 4:
                new = "Q4_K"
            elif q == "IQ3_XXS":
                new = "Q4_K" if n_gqa >= 4 else "IQ3_S"
            elif q in ("IQ3_XS", "IQ3_S") and n_gqa >= 4:
                new = "Q4_K"
            elif q == "IQ3_M":
                new = "Q4_K"
            elif q == "Q3_K_M":
                new = "Q5_K" if i_wv < 2 else "Q4_K"
            elif q == "Q3_K_L":
                new = "Q5_K"
            elif q in ("IQ4_NL", "IQ4_XS") and n_gqa >= 4:
                new = "Q5_K"
            elif q in ("Q4_K_M", "Q5_K_M") and more_bits(i_wv, n_wv):
                new = "Q6_K"
            elif q == "Q4_K_S" and i_wv < 4:
                new = "Q5_K"
            if is70b and new in ("Q3_K", "Q4_K"):
                new = "Q5_K"
            if n_expert == 8:
                new = "Q8_0"
            i_wv += 1
        elif c == "K":
            if n_expert == 8:
                new = "Q8_0"
            elif q == "IQ3_XS":
                new = "IQ3_XXS"
            elif q == "IQ3_XXS":
                new = "IQ2_S"
        elif c == "Q":
            if q == "IQ3_XS":
                new = "IQ3_XXS"
            elif q == "IQ3_XXS":
                new = "IQ2_S"
        elif c == "DOWN":
            i, nl = il(i_down), n_layer
            if q == "Q2_K":
                new = "Q3_K"
            elif q == "Q2_K_S":
                new = "Q4_K" if i < nl // 8 else new
            elif q == "IQ3_XXS":
                new = "Q4_K" if i < nl // 8 else "Q3_K"
            elif q == "Q3_K_M":
                new = "Q5_K" if i < nl // 16 else "Q4_K"
            elif q == "IQ3_M" and (i < nl // 8 or (n_expert == 8 and more_bits(i, nl))):
                new = "Q4_K"
            elif q == "Q3_K_L":
                new = "Q5_K"
            elif q == "Q4_K_M":
                new = "Q6_K" if more_bits(i, nl) else new
            elif q in ("IQ4_NL", "IQ4_XS") and i < nl // 8:
                new = "Q5_K"
            elif q == "Q5_K_M" and more_bits(i, nl):
                new = "Q6_K"
            elif q == "Q4_K_S" and i < nl // 8:
                new = "Q5_K"
            i_down += 1
        elif c == "O":
            if n_expert == 8:
                if q in (
                    "Q2_K",
                    "IQ3_XS",
                    "IQ3_XXS",
                    "Q3_K_S",
                    "Q3_K_M",
                    "IQ4_NL",
                    "Q4_K_S",
                    "Q4_K_M",
                    "IQ3_S",
                    "IQ3_M",
                    "IQ4_XS",
                ):
                    new = "Q5_K"
            elif q == "Q2_K":
                new = "Q3_K"
            elif q == "IQ3_XXS":
                new = "IQ3_S"
            elif q == "Q3_K_M":
                new = "Q4_K"
            elif q == "Q3_K_L":
                new = "Q5_K"
            elif q == "IQ3_M":
                new = "Q4_K"
        elif c == "GATE":
            if q == "IQ3_XS" and n_layer // 8 <= il(i_gate) < 7 * n_layer // 8:
                new = "IQ3_XXS"
            i_gate += 1
        elif c == "UP":
            if q == "IQ3_XS" and n_layer // 8 <= il(i_up) < 7 * n_layer // 8:
                new = "IQ3_XXS"
            i_up += 1
        if s[0] % GGML[new][1] != 0:  # shapes that do not divide into blocks
            if new in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"):
                new = "IQ4_NL"
            elif new in ("Q2_K", "Q3_K"):
                new = "Q4_0"
            elif new == "Q4_K":
                new = "Q5_0"
            elif new == "Q5_K":
                new = "Q5_1"
            elif new == "Q6_K":
                new = "Q8_0"
            if s[0] % GGML[new][1] != 0:
                new = "F16"
        out[n] = new
    return [(n, s, out[n]) for n, s, _ in m.tensors]


# ---------------------------------------------------------------- architectures
def dense(
    arch,
    name,
    n_layer,
    n_embd,
    n_ff,
    n_head,
    n_kv,
    n_vocab,
    ctx,
    head=None,
    tied=False,
    bias=False,
    qk_norm=False,
    rope_freqs=False,
    fused=False,
    post_norms=False,
    eps=1e-5,
    rope_base=10000.0,
    tok="gpt2",
    pre="default",
    is_70b=False,
    swa=0,
    softcap=False,
    rope_dim=True,
    longrope=0,
    extra=None,
):
    """Llama-like decoders"""
    head = head or n_embd // n_head
    m = Model(
        arch,
        name,
        n_vocab,
        tok,
        pre,
        context_length=ctx,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__head_count_kv=n_kv,
        rope__freq_base=float(rope_base),
        attention__layer_norm_rms_epsilon=eps,
    )
    if arch not in ("qwen2", "phi3"):
        m.set(attention__key_length=head, attention__value_length=head)
    if arch == "llama":
        m.set(vocab_size=n_vocab)
    if rope_dim and arch in ("llama", "phi3"):
        m.set(rope__dimension_count=head)
    if swa:
        m.set(attention__sliding_window=swa)
    if softcap:
        m.set(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    m.set(**(extra or {}))
    m.hint = {"n_gqa": n_head // n_kv, "is_70b": is_70b}
    q, kv = n_head * head, n_kv * head
    if rope_freqs:
        m.t("rope_freqs.weight", head // 2)
    m.t("token_embd.weight", n_embd, n_vocab)
    if longrope:
        m.t("rope_factors_long.weight", longrope // 2)
        m.t("rope_factors_short.weight", longrope // 2)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        if fused:
            m.b(i, "attn_qkv.weight", n_embd, q + 2 * kv)
        else:
            for x, w in (("q", q), ("k", kv), ("v", kv)):
                m.b(i, f"attn_{x}.weight", n_embd, w)
                if bias:
                    m.b(i, f"attn_{x}.bias", w)
        if qk_norm:
            m.b(i, "attn_q_norm.weight", head)
            m.b(i, "attn_k_norm.weight", head)
        m.b(i, "attn_output.weight", q, n_embd)
        if post_norms:
            m.b(i, "post_attention_norm.weight", n_embd)
            m.b(i, "post_ffw_norm.weight", n_embd)
        m.b(i, "ffn_norm.weight", n_embd)
        if fused:
            m.b(i, "ffn_up.weight", n_embd, 2 * n_ff)
        else:
            m.b(i, "ffn_gate.weight", n_embd, n_ff)
            m.b(i, "ffn_up.weight", n_embd, n_ff)
        m.b(i, "ffn_down.weight", n_ff, n_embd)
    m.t("output_norm.weight", n_embd)
    if not tied:
        m.t("output.weight", n_embd, n_vocab)
    return m


def experts(m, i, n_embd, n_ff_exp, n_expert):
    m.b(i, "ffn_gate_exps.weight", n_embd, n_ff_exp, n_expert)
    m.b(i, "ffn_up_exps.weight", n_embd, n_ff_exp, n_expert)
    m.b(i, "ffn_down_exps.weight", n_ff_exp, n_embd, n_expert)


def shexp(m, i, n_embd, n_ff):
    m.b(i, "ffn_gate_shexp.weight", n_embd, n_ff)
    m.b(i, "ffn_up_shexp.weight", n_embd, n_ff)
    m.b(i, "ffn_down_shexp.weight", n_ff, n_embd)


def qwen3moe(
    name,
    n_layer=48,
    n_embd=2048,
    n_ff=6144,
    n_ff_exp=768,
    n_exp=128,
    used=8,
    n_head=32,
    n_kv=4,
    head=128,
    ctx=40960,
    n_vocab=151936,
):
    m = Model(
        "qwen3moe",
        name,
        n_vocab,
        "gpt2",
        "qwen2",
        context_length=ctx,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__head_count_kv=n_kv,
        attention__key_length=head,
        attention__value_length=head,
        rope__freq_base=1e6,
        attention__layer_norm_rms_epsilon=1e-6,
        expert_count=n_exp,
        expert_used_count=used,
        expert_feed_forward_length=n_ff_exp,
    )
    m.hint = {"n_gqa": n_head // n_kv}
    m.t("token_embd.weight", n_embd, n_vocab)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        m.b(i, "attn_q.weight", n_embd, n_head * head)
        m.b(i, "attn_k.weight", n_embd, n_kv * head)
        m.b(i, "attn_v.weight", n_embd, n_kv * head)
        m.b(i, "attn_q_norm.weight", head)
        m.b(i, "attn_k_norm.weight", head)
        m.b(i, "attn_output.weight", n_head * head, n_embd)
        m.b(i, "ffn_norm.weight", n_embd)
        m.b(i, "ffn_gate_inp.weight", n_embd, n_exp)
        experts(m, i, n_embd, n_ff_exp, n_exp)
    m.t("output_norm.weight", n_embd)
    m.t("output.weight", n_embd, n_vocab)
    return m


def gpt_oss(name, n_layer=24, n_exp=32):
    n_embd, n_ff, n_head, n_kv, head, n_vocab = 2880, 2880, 64, 8, 64, 201088
    m = Model(
        "gpt-oss",
        name,
        n_vocab,
        "gpt2",
        "gpt-4o",
        context_length=131072,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__head_count_kv=n_kv,
        attention__key_length=head,
        attention__value_length=head,
        rope__freq_base=150000.0,
        attention__layer_norm_rms_epsilon=1e-5,
        expert_count=n_exp,
        expert_used_count=4,
        expert_feed_forward_length=n_ff,
        attention__sliding_window=128,
        rope__scaling__type="yarn",
        rope__scaling__factor=32.0,
        rope__scaling__original_context_length=4096,
    )
    m.hint = {"n_gqa": n_head // n_kv}
    m.t("token_embd.weight", n_embd, n_vocab)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        for x, w in (("q", n_head * head), ("k", n_kv * head), ("v", n_kv * head)):
            m.b(i, f"attn_{x}.weight", n_embd, w)
            m.b(i, f"attn_{x}.bias", w)
        m.b(i, "attn_output.weight", n_head * head, n_embd)
        m.b(i, "attn_output.bias", n_embd)
        m.b(i, "attn_sinks.weight", n_head)
        m.b(i, "post_attention_norm.weight", n_embd)
        m.b(i, "ffn_gate_inp.weight", n_embd, n_exp)
        m.b(i, "ffn_gate_inp.bias", n_exp)
        experts(m, i, n_embd, n_ff, n_exp)
        m.b(i, "ffn_gate_exps.bias", n_ff, n_exp)
        m.b(i, "ffn_up_exps.bias", n_ff, n_exp)
        m.b(i, "ffn_down_exps.bias", n_embd, n_exp)
    m.t("output_norm.weight", n_embd)
    m.t("output.weight", n_embd, n_vocab)
    return m


def deepseek2_lite(name):
    n_layer, n_embd, n_ff, n_ff_exp, n_exp, n_head, n_vocab = 27, 2048, 10944, 1408, 64, 16, 102400
    lora, rope, nope, v = 512, 64, 128, 128
    m = Model(
        "deepseek2",
        name,
        n_vocab,
        "gpt2",
        "deepseek-llm",
        context_length=163840,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__head_count_kv=1,
        rope__freq_base=10000.0,
        attention__layer_norm_rms_epsilon=1e-6,
        expert_used_count=6,
        leading_dense_block_count=1,
        vocab_size=n_vocab,
        attention__kv_lora_rank=lora,
        attention__key_length=lora + rope,
        attention__value_length=lora,
        attention__key_length_mla=nope + rope,
        attention__value_length_mla=v,
        expert_feed_forward_length=n_ff_exp,
        expert_count=n_exp,
        expert_shared_count=2,
        expert_weights_scale=1.0,
        rope__dimension_count=rope,
        rope__scaling__type="yarn",
        rope__scaling__factor=40.0,
        rope__scaling__original_context_length=4096,
        rope__scaling__yarn_log_multiplier=0.0707,
    )
    m.hint = {"n_gqa": n_head}
    m.t("token_embd.weight", n_embd, n_vocab)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        m.b(i, "attn_q.weight", n_embd, n_head * (nope + rope))
        m.b(i, "attn_kv_a_mqa.weight", n_embd, lora + rope)
        m.b(i, "attn_kv_a_norm.weight", lora)
        m.b(i, "attn_k_b.weight", nope, lora, n_head)
        m.b(i, "attn_v_b.weight", lora, v, n_head)
        m.b(i, "attn_output.weight", n_head * v, n_embd)
        m.b(i, "ffn_norm.weight", n_embd)
        if i < 1:
            m.b(i, "ffn_gate.weight", n_embd, n_ff)
            m.b(i, "ffn_up.weight", n_embd, n_ff)
            m.b(i, "ffn_down.weight", n_ff, n_embd)
        else:
            m.b(i, "ffn_gate_inp.weight", n_embd, n_exp)
            experts(m, i, n_embd, n_ff_exp, n_exp)
            shexp(m, i, n_embd, 2 * n_ff_exp)
    m.t("output_norm.weight", n_embd)
    m.t("output.weight", n_embd, n_vocab)
    return m


def granite_h_tiny(name):
    n_layer, n_embd, n_ff, n_sh, n_exp, n_head, n_kv, n_vocab = 40, 1536, 512, 1024, 64, 12, 4, 100352
    attn, d_conv, d_inner, d_state, n_ssm, group = (5, 15, 25, 35), 4, 3072, 128, 48, 1
    m = Model(
        "granitehybrid",
        name,
        n_vocab,
        "gpt2",
        "dbrx",
        context_length=1 << 20,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__head_count_kv=[n_kv if i in attn else 0 for i in range(n_layer)],
        rope__freq_base=10000.0,
        attention__layer_norm_rms_epsilon=1e-5,
        expert_count=n_exp,
        expert_used_count=6,
        vocab_size=n_vocab,
        rope__dimension_count=128,
        attention__scale=0.0078125,
        embedding_scale=12.0,
        residual_scale=0.22,
        logit_scale=6.0,
        expert_shared_feed_forward_length=n_sh,
        ssm__conv_kernel=d_conv,
        ssm__state_size=d_state,
        ssm__group_count=group,
        ssm__inner_size=d_inner,
        ssm__time_step_rank=n_ssm,
        rope__scaling__finetuned=False,
    )
    m.hint = {"n_gqa": 0}  # layer 0 has no KV heads
    head = n_embd // n_head
    m.t("token_embd.weight", n_embd, n_vocab)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        if i in attn:
            m.b(i, "attn_q.weight", n_embd, n_head * head)
            m.b(i, "attn_k.weight", n_embd, n_kv * head)
            m.b(i, "attn_v.weight", n_embd, n_kv * head)
            m.b(i, "attn_output.weight", n_head * head, n_embd)
        else:
            conv = d_inner + 2 * group * d_state
            m.b(i, "ssm_in.weight", n_embd, 2 * d_inner + 2 * group * d_state + n_ssm)
            m.b(i, "ssm_conv1d.weight", d_conv, conv)
            m.b(i, "ssm_conv1d.bias", conv)
            m.b(i, "ssm_dt.bias", n_ssm)
            m.b(i, "ssm_a", 1, n_ssm)
            m.b(i, "ssm_d", 1, n_ssm)
            m.b(i, "ssm_norm.weight", d_inner // group, group)
            m.b(i, "ssm_out.weight", d_inner, n_embd)
        m.b(i, "ffn_norm.weight", n_embd)
        m.b(i, "ffn_gate_inp.weight", n_embd, n_exp)
        experts(m, i, n_embd, n_ff, n_exp)
        shexp(m, i, n_embd, n_sh)
    m.t("output_norm.weight", n_embd)
    return m


def mamba(name, n_layer=64, n_embd=2560, n_vocab=50280):
    d_inner, d_state, d_conv, rank = 2 * n_embd, 16, 4, n_embd // 16
    m = Model(
        "mamba",
        name,
        n_vocab,
        "gpt2",
        "olmo",
        context_length=1 << 20,
        embedding_length=n_embd,
        feed_forward_length=0,
        attention__head_count=0,
        block_count=n_layer,
        ssm__conv_kernel=d_conv,
        ssm__inner_size=d_inner,
        ssm__state_size=d_state,
        ssm__time_step_rank=rank,
        attention__layer_norm_rms_epsilon=1e-5,
        ssm__dt_b_c_rms=False,
    )
    m.hint = {"n_gqa": 0}
    m.t("token_embd.weight", n_embd, n_vocab)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        m.b(i, "ssm_in.weight", n_embd, 2 * d_inner)
        m.b(i, "ssm_conv1d.weight", d_conv, d_inner)
        m.b(i, "ssm_conv1d.bias", d_inner)
        m.b(i, "ssm_x.weight", d_inner, rank + 2 * d_state)
        m.b(i, "ssm_dt.weight", rank, d_inner)
        m.b(i, "ssm_dt.bias", d_inner)
        m.b(i, "ssm_a", d_state, d_inner)
        m.b(i, "ssm_d", d_inner)
        m.b(i, "ssm_out.weight", d_inner, n_embd)
    m.t("output_norm.weight", n_embd)
    return m


def gemma3n(name, n_layer=30, n_ff=8192, shared=10):
    n_embd, n_head, n_kv, head, n_vocab, altup, laurel, pl = 2048, 8, 2, 256, 262400, 4, 64, 256
    m = Model(
        "gemma3n",
        name,
        n_vocab,
        "llama",
        "default",
        context_length=32768,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__head_count_kv=n_kv,
        attention__key_length=head,
        attention__value_length=head,
        rope__freq_base=1e6,
        attention__layer_norm_rms_epsilon=1e-6,
        attention__sliding_window=512,
        altup__active_idx=0,
        altup__num_inputs=altup,
        embedding_length_per_layer_input=pl,
        attention__shared_kv_layers=shared,
        activation_sparsity_scale=[1.6448535] * 10 + [-math.inf] * (n_layer - 10),
        attention__sliding_window_pattern=[(i + 1) % 5 != 0 for i in range(n_layer)],
    )
    m.hint = {"n_gqa": n_head // n_kv}
    m.t("token_embd.weight", n_embd, n_vocab)
    m.t("altup_proj.weight", n_embd, n_embd, altup - 1)
    m.t("altup_unembd_proj.weight", n_embd, n_embd, altup - 1)
    m.t("per_layer_token_embd.weight", pl * n_layer, n_vocab)
    m.t("per_layer_model_proj.weight", n_embd, pl * n_layer)
    m.t("per_layer_proj_norm.weight", pl)
    for i in range(n_layer):
        m.b(i, "attn_norm.weight", n_embd)
        m.b(i, "attn_q.weight", n_embd, n_head * head)
        m.b(i, "attn_k.weight", n_embd, n_kv * head)
        m.b(i, "attn_v.weight", n_embd, n_kv * head)
        m.b(i, "attn_q_norm.weight", head)
        m.b(i, "attn_k_norm.weight", head)
        m.b(i, "attn_output.weight", n_head * head, n_embd)
        m.b(i, "post_attention_norm.weight", n_embd)
        m.b(i, "ffn_norm.weight", n_embd)
        m.b(i, "ffn_gate.weight", n_embd, n_ff)
        m.b(i, "ffn_up.weight", n_embd, n_ff)
        m.b(i, "ffn_down.weight", n_ff, n_embd)
        m.b(i, "post_ffw_norm.weight", n_embd)
        m.b(i, "inp_gate.weight", n_embd, pl)
        m.b(i, "proj.weight", pl, n_embd)
        m.b(i, "post_norm.weight", n_embd)
        m.b(i, "altup_correct_coef.weight", altup, altup)
        m.b(i, "altup_correct_scale.weight", n_embd)
        m.b(i, "altup_predict_coef.weight", altup, altup * altup)
        m.b(i, "altup_router.weight", n_embd, altup)
        m.b(i, "altup_router_norm.weight", n_embd)
        m.b(i, "laurel_l.weight", n_embd, laurel)
        m.b(i, "laurel_r.weight", laurel, n_embd)
        m.b(i, "laurel_post_norm.weight", n_embd)
    m.t("output_norm.weight", n_embd)
    return m


def bert(arch, name, n_layer, n_embd, n_ff, n_head, ctx, gated, bias, pooling):
    n_vocab = 30522
    m = Model(
        arch,
        name,
        n_vocab,
        "bert",
        "default",
        context_length=ctx,
        embedding_length=n_embd,
        block_count=n_layer,
        feed_forward_length=n_ff,
        attention__head_count=n_head,
        attention__layer_norm_epsilon=1e-12,
        attention__causal=False,
        pooling_type=pooling,
    )
    if gated:
        m.set(rope__freq_base=1000.0)
    m.hint = {"n_gqa": 1}
    m.t("token_embd.weight", n_embd, n_vocab)
    m.t("token_types.weight", n_embd, 2)
    m.t("token_embd_norm.weight", n_embd)
    m.t("token_embd_norm.bias", n_embd)
    if not gated:
        m.t("position_embd.weight", n_embd, ctx)
    for i in range(n_layer):
        if gated:
            m.b(i, "attn_qkv.weight", n_embd, 3 * n_embd)
        else:
            for x in "qkv":
                m.b(i, f"attn_{x}.weight", n_embd, n_embd)
                m.b(i, f"attn_{x}.bias", n_embd)
        m.b(i, "attn_output.weight", n_embd, n_embd)
        m.b(i, "attn_output_norm.weight", n_embd)
        m.b(i, "attn_output_norm.bias", n_embd)
        m.b(i, "ffn_up.weight", n_embd, n_ff)
        if gated:
            m.b(i, "ffn_gate.weight", n_embd, n_ff)
        m.b(i, "ffn_down.weight", n_ff, n_embd)
        if bias:
            m.b(i, "attn_output.bias", n_embd)
            m.b(i, "ffn_up.bias", n_ff)
            m.b(i, "ffn_down.bias", n_embd)
        m.b(i, "layer_output_norm.weight", n_embd)
        m.b(i, "layer_output_norm.bias", n_embd)
    return m


# name: (constructor, quantization used by truth.py)
MODELS = {
    "llama-3.1-8b": (
        lambda n: dense(
            "llama", n, 32, 4096, 14336, 32, 8, 128256, 131072, rope_freqs=True, rope_base=5e5, pre="llama-bpe"
        ),
        "Q4_K_M",
    ),
    "llama-3.2-1b": (
        lambda n: dense(
            "llama",
            n,
            16,
            2048,
            8192,
            32,
            8,
            128256,
            131072,
            tied=True,
            rope_freqs=True,
            rope_base=5e5,
            pre="llama-bpe",
        ),
        "Q8_0",
    ),
    "qwen2.5-7b": (
        lambda n: dense(
            "qwen2", n, 28, 3584, 18944, 28, 4, 152064, 32768, bias=True, eps=1e-6, rope_base=1e6, pre="qwen2"
        ),
        "Q5_K_M",
    ),
    "qwen3-30b-a3b": (qwen3moe, "Q4_K_M"),
    "gemma-3-12b": (
        lambda n: dense(
            "gemma3",
            n,
            48,
            3840,
            15360,
            16,
            8,
            262144,
            131072,
            head=256,
            tied=True,
            qk_norm=True,
            post_norms=True,
            eps=1e-6,
            rope_base=1e6,
            tok="llama",
            swa=1024,
            extra={"rope__scaling__type": "linear", "rope__scaling__factor": 8.0},
        ),
        "Q4_K_M",
    ),
    "phi-4": (
        lambda n: dense(
            "phi3",
            n,
            40,
            5120,
            17920,
            40,
            10,
            100352,
            16384,
            fused=True,
            rope_base=250000.0,
            pre="dbrx",
            extra={"rope__scaling__original_context_length": 16384, "attention__sliding_window": 0},
        ),
        "Q4_K_M",
    ),
    "gpt-oss-20b": (gpt_oss, "MXFP4_MOE"),
    "deepseek-v2-lite": (deepseek2_lite, "Q4_K_M"),
    "granite-4.0-h-tiny": (granite_h_tiny, "Q4_K_M"),
    "mamba-2.8b": (mamba, "Q6_K"),
    "gemma-3n-e2b": (gemma3n, "Q4_K_M"),
    "nomic-embed-text-v1.5": (lambda n: bert("nomic-bert", n, 12, 768, 3072, 12, 2048, True, False, 1), "F16"),
}


# ---------------------------------------------------------------- dummy vocabulary
def vocab(m):
    n = m.n_vocab
    kv = {"tokenizer.ggml.model": m.tok}
    if m.tok in ("gpt2", "gemma4"):
        if m.tok == "gpt2":
            kv["tokenizer.ggml.pre"] = m.pre
        vis = (
            list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
        )  # GPT-2's printable form of the 256 bytes
        chars = {b: chr(b) for b in vis}
        k = 0
        for b in range(256):
            if b not in chars:
                chars[b] = chr(256 + k)
                k += 1
        base = [chars[b] for b in range(256)]
        toks = base + [f"t{i:06d}" for i in range(256, n)]
        types = [1] * n
        for i in (n - 1, n - 2):
            toks[i], types[i] = f"<|special_{i}|>", 3
        kv["tokenizer.ggml.merges"] = ["a b", "c d", "e f", "t h"]
        kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"] = toks, types
        if m.tok == "gemma4":
            kv["tokenizer.ggml.scores"] = [0.0] * n
        kv["tokenizer.ggml.bos_token_id"], kv["tokenizer.ggml.eos_token_id"] = n - 2, n - 1
    elif m.tok == "llama":
        toks = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"]
        types = [2, 3, 3] + [6] * 256 + [1]
        toks += [f"t{i:06d}" for i in range(len(toks), n)]
        types += [1] * (n - len(types))
        toks[-1], types[-1] = "<|endoftext|>", 3  # the loader looks it up for phi-3
        kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"] = toks, types
        kv["tokenizer.ggml.scores"] = [-float(i) for i in range(n)]
        kv.update(
            {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0}
        )
    elif m.tok == "bert":
        toks = [f"[unused{i}]" for i in range(n)]
        toks[0], toks[100], toks[101], toks[102], toks[103] = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
        kv["tokenizer.ggml.tokens"] = toks
        kv["tokenizer.ggml.token_type"] = [1] * n
        kv["tokenizer.ggml.token_type_count"] = 2
        kv.update(
            {
                "tokenizer.ggml.unknown_token_id": 100,
                "tokenizer.ggml.seperator_token_id": 102,
                "tokenizer.ggml.padding_token_id": 0,
                "tokenizer.ggml.cls_token_id": 101,
                "tokenizer.ggml.mask_token_id": 103,
            }
        )
    assert len(kv["tokenizer.ggml.tokens"]) == n == len(set(kv["tokenizer.ggml.tokens"]))
    return kv


# ---------------------------------------------------------------- GGUF writer
def _str(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def _value(v):
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + _str(v)
    if isinstance(v, list):
        e = v[0]
        if isinstance(e, bool):
            return struct.pack("<IIQ", 9, 7, len(v)) + struct.pack(f"<{len(v)}B", *v)
        if isinstance(e, int):
            return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)
        if isinstance(e, float):
            return struct.pack("<IIQ", 9, 6, len(v)) + struct.pack(f"<{len(v)}f", *v)
        if isinstance(e, str):
            return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(_str, v))
    raise TypeError(v)


def build(name, path, quant=None):
    """writes the phantom; returns {'file_bytes', 'tensor_bytes', 'n_tensors', 'quant'}"""
    make, default_quant = MODELS[name]
    quant = quant or default_quant
    m = make(name)
    tensors = quant_types(m, quant)
    kv = {
        "general.architecture": m.arch,
        "general.type": "model",
        "general.name": name + " (phantom: no weights)",
        "general.file_type": FTYPE[quant][0],
        "general.quantization_version": 2,
    }
    kv.update(m.kv)
    kv.update(vocab(m))
    head = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(kv))]
    head += [_str(k) + _value(v) for k, v in kv.items()]
    off = 0
    for n, s, t in tensors:
        head.append(_str(n) + struct.pack(f"<I{len(s)}QIQ", len(s), *s, GGML[t][0], off))
        off += -(-tensor_bytes(t, s) // 32) * 32
    head = b"".join(head)
    data = -(-len(head) // 32) * 32
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(data + off)  # the hole
    return {
        "file_bytes": data + off,
        "tensor_bytes": sum(tensor_bytes(t, s) for _, s, t in tensors),
        "n_tensors": len(tensors),
        "quant": quant,
    }


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("name", nargs="?")
    ap.add_argument("out", nargs="?")
    ap.add_argument("--quant", help="llama-quantize type, e.g. " + ", ".join(FTYPE))
    ap.add_argument("--list", action="store_true", help="list the models and the quantization truth.jsonl uses")
    a = ap.parse_args()
    if a.list or not a.out:
        for n, (_, q) in MODELS.items():
            print(f"{n:24s} {q}")
        return 0 if a.list else 2
    if a.name not in MODELS:
        ap.error(f"unknown model {a.name!r}; --list shows them")
    if a.quant and a.quant not in FTYPE:
        ap.error(f"unknown quantization {a.quant!r}; known: " + ", ".join(FTYPE))
    info = build(a.name, a.out, a.quant)
    st = os.stat(a.out)
    print(
        f"{a.out}: {info['n_tensors']} tensors, {info['quant']}, {info['file_bytes'] / 1e9:.3f} GB apparent, {st.st_blocks * 512 / 1e6:.1f} MB on disk"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
