"""What a quantization costs in quality, as constants and in words.

Bits per weight and mean Kullback-Leibler divergence from the 16-bit model, measured by the llama.cpp project on Llama 3
8B (tools/quantize and tools/perplexity, MIT); newer and smaller models suffer somewhat more, so the words are about the
usual, not a promise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Quality(NamedTuple):
    """Bits per weight (average over a model) and mean KL divergence."""

    bits_per_weight: float
    kl_divergence: float


TABLE: Mapping[str, Quality] = {
    "F32": Quality(32.0, 0.0),
    "BF16": Quality(16.0, 0.0005),
    "F16": Quality(16.0, 0.00055),
    "Q8_0": Quality(8.5, 0.00136),
    "Q6_K": Quality(6.56, 0.0055),
    "Q5_K_M": Quality(5.70, 0.0108),
    "Q5_K_S": Quality(5.57, 0.0166),
    "Q5_1": Quality(6.0, 0.018),
    "Q5_0": Quality(5.6, 0.022),
    "Q4_K_M": Quality(4.89, 0.0313),
    "Q4_K_S": Quality(4.67, 0.0431),
    "IQ4_NL": Quality(4.68, 0.0357),
    "IQ4_XS": Quality(4.46, 0.0363),
    "Q4_1": Quality(5.1, 0.072),
    "Q4_0": Quality(4.6, 0.072),
    "Q3_K_L": Quality(4.30, 0.0731),
    "Q3_K_M": Quality(4.00, 0.1019),
    "IQ3_M": Quality(3.76, 0.1025),
    "IQ3_S": Quality(3.66, 0.1113),
    "IQ3_XS": Quality(3.50, 0.1387),
    "IQ3_XXS": Quality(3.25, 0.1836),
    "Q3_K_S": Quality(3.64, 0.1998),
    "IQ2_M": Quality(2.93, 0.326),
    "Q2_K": Quality(3.16, 0.4451),
    "Q2_K_S": Quality(2.97, 0.4034),
    "IQ2_S": Quality(2.74, 0.4392),
    "IQ2_XS": Quality(2.59, 0.5463),
    "IQ2_XXS": Quality(2.38, 0.812),
    "IQ1_M": Quality(2.15, 1.393),
    "IQ1_S": Quality(2.0, 2.2),
}
#: made in four bits from the start: nothing is lost by it
NATIVE = frozenset(("MXFP4", "MXFP4_MOE", "NVFP4"))
#: the smallest quality that is offered unasked
FLOOR = "IQ3_M"
_LEVELS = (
    (0.002, "no loss that can be noticed"),
    (0.012, "nearly lossless"),
    (0.05, "slight loss"),
    (0.11, "some loss"),
    (0.35, "clear loss"),
    (1.0, "heavy loss"),
)
_WORST = "hardly usable"


def plain_name(quantization: str) -> str:
    """The name as it is in the table: "UD-Q4_K_XL" becomes "Q4_K_M", "q4_k_m" becomes "Q4_K_M"."""
    name = quantization.upper().strip().removeprefix("UD-").replace("-", "_")
    name = re.sub(r"^(I?Q\d_K)_(XL|L)$", r"\1_M" if "Q3" not in name else r"\1_L", name)
    return f"{name}_M" if f"{name}_M" in TABLE and name not in TABLE else name


def of(quantization: str) -> Quality | None:
    """Figures of a quantization; None if it is not in the table."""
    return TABLE.get(plain_name(quantization))


def words(quantization: str) -> str:
    """The loss in plain words."""
    if plain_name(quantization) in NATIVE:
        return "as the model was made"
    known = of(quantization)
    if known is None:
        return "loss not known"
    return next((text for limit, text in _LEVELS if known.kl_divergence <= limit), _WORST)


def good_enough(quantization: str, floor: str = FLOOR) -> bool:
    """Not worse than the floor; an unknown one is not offered."""
    if plain_name(quantization) in NATIVE:
        return True
    known, least = of(quantization), TABLE[floor]
    return known is not None and known.kl_divergence <= least.kl_divergence
