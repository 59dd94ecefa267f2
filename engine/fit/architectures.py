"""Architectures of llama.cpp by what they keep of the tokens they have seen.

Restated from llama.cpp (MIT; llama-arch.cpp, llama-model.cpp `create_memory`, the files of src/models), revision
0c1e570.
"""

from __future__ import annotations

from dataclasses import dataclass

#: architectures without a cache: encoders and diffusion models
NO_MEMORY = frozenset(
    (
        "bert",
        "jina-bert-v2",
        "jina-bert-v3",
        "nomic-bert",
        "nomic-bert-moe",
        "neo-bert",
        "eurobert",
        "wavtokenizer-dec",
        "modern-bert",
        "gemma-embedding",
        "dream",
        "llada",
        "llada-moe",
        "rnd1",
    )
)
RECURRENT = frozenset(
    (
        "mamba",
        "mamba2",
        "rwkv6",
        "rwkv6qwen2",
        "rwkv7",
        "arwkv7",
    )
)
#: recurrent exactly where a layer has no KV heads
HYBRID_BY_HEADS = frozenset(
    (
        "jamba",
        "granitehybrid",
        "lfm2",
        "lfm2moe",
        "plamo2",
        "kimi-linear",
        "kimi-k3",
        "bailingmoe3",
        "glm5-next",
    )
)
#: recurrent but for every n-th layer, or as a list says: architecture -> n
HYBRID_BY_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
NEMOTRON = frozenset(
    (
        "nemotron_h",
        "nemotron_h_moe",
    )
)


@dataclass(frozen=True)
class Window:
    """How an architecture mixes sliding-window layers with full ones.

    Attributes:
        period: every `period`-th layer is full; 0: only a list in the file says it.
        full_first: the full layer is the first of a period, not the last.
        default: window where the file names none; 0: then there is no window.
        fixed: window whatever the file says; 0: the file's.
    """

    period: int
    full_first: bool = False
    default: int = 0
    fixed: int = 0


WINDOWS = {
    "afmoe": Window(4),
    "cohere2": Window(4),
    "cohere2moe": Window(4, full_first=True),
    "exaone-moe": Window(4, default=128),
    "exaone4": Window(4, default=4096),
    "gemma2": Window(2, default=4096),
    "gemma3": Window(6),
    "gemma3n": Window(5),
    "gemma4": Window(0),
    "gpt-oss": Window(2),
    "granite_swa": Window(0),
    "laguna": Window(4, full_first=True),
    "llama4": Window(4, default=8192, fixed=8192),
    "maple": Window(0),
    "mellum": Window(4),
    "mimo2": Window(0),
    "muse-glimmer": Window(4),
    "olmo2": Window(4),
    "plamo3": Window(8),
    "smallthinker": Window(4, full_first=True, fixed=4096),
    "spark2_5": Window(0),
    "step35": Window(0),
}
#: caches beside the usual ones, or graphs of a kind of their own: the formulas are too low there
SPECIAL = frozenset(
    (
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm5-next",
        "minimax-m3",
        "dots3note",
        "hy_v4",
        "qwen4exp",
        "dflash",
        "eagle3",
        "gemma4-assistant",
        "graniteswitch",
        "nanbeige",
        "hrm_text",
        "t5",
        "t5encoder",
    )
)
#: all architectures whose rule was read in llama.cpp
KNOWN = (
    NO_MEMORY
    | RECURRENT
    | HYBRID_BY_HEADS
    | HYBRID_BY_INTERVAL.keys()
    | NEMOTRON
    | WINDOWS.keys()
    | frozenset(
        (
            "llama",
            "falcon-h1",
            "apertus",
            "arcee",
            "arctic",
            "baichuan",
            "bailingmoe",
            "bailingmoe2",
            "bitnet",
            "bloom",
            "chameleon",
            "chatglm",
            "codeshell",
            "cogvlm",
            "command-r",
            "dbrx",
            "deci",
            "deepseek",
            "deepseek2",
            "deepseek2-ocr",
            "dots1",
            "ernie4_5",
            "ernie4_5-moe",
            "exaone",
            "falcon",
            "gemma",
            "glm4",
            "glm4moe",
            "gpt2",
            "gptj",
            "gptneox",
            "granite",
            "granitemoe",
            "grok",
            "grovemoe",
            "hunyuan-dense",
            "hunyuan-moe",
            "hunyuan_vl",
            "hy_v3",
            "internlm2",
            "jais",
            "jais2",
            "llama-embed",
            "maincoder",
            "minicpm",
            "minicpm3",
            "minimax-m2",
            "mistral3",
            "mistral4",
            "mpt",
            "nemotron",
            "olmo",
            "olmoe",
            "openelm",
            "orion",
            "paddleocr",
            "pangu-embedded",
            "phi2",
            "phi3",
            "phimoe",
            "plamo",
            "plm",
            "qwen",
            "qwen2",
            "qwen2moe",
            "qwen2vl",
            "qwen3",
            "qwen3moe",
            "qwen3vl",
            "qwen3vlmoe",
            "refact",
            "seed_oss",
            "smollm3",
            "stablelm",
            "starcoder",
            "starcoder2",
            "talkie",
            "xverse",
        )
    )
)
