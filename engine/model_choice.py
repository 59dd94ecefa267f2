"""Which quantization of a model to take on this computer, where the user names none."""

from __future__ import annotations

from collections.abc import Sequence

from engine.fit import lists, quality
from engine.fit.plan_records import Machine, Verdict, Wishes
from engine.models.gguf_header import GgufHeader
from engine.models.hub_names import ModelSet, find_set

USUAL = "Q4_K_M"
#: below this many bytes of the usual quantization, better ones cost next to nothing
_SMALL_BYTES = 1_000_000_000
#: worse ones are not taken for speed alone
_LEAST = "Q4_K_S"
#: tokens of context that must have room beside it
_CONTEXT = 8192
_BEST, _BEST_OF_SMALL = "Q6_K", "Q8_0"


def best_set(sets: Sequence[ModelSet], header: GgufHeader | None, machine: Machine | None) -> ModelSet | None:
    """The set to take: of those that run wholly on the GPU the best; else the usual one or the next smaller that fits.

    Args:
        sets: of one model, complete or not.
        header: of any of them; None: no look at the memory.

    Returns None if no set is complete.
    """
    whole = [item for item in sets if item.complete]
    usual = find_set(whole, USUAL) or _nearest(whole)
    if usual is None or header is None or machine is None:
        return usual
    n_ctx = min(_CONTEXT, header.of_architecture("context_length") or _CONTEXT)
    wishes = Wishes(n_ctx=n_ctx, kv_type_k="f16", kv_type_v="f16")
    small = usual.size_bytes < _SMALL_BYTES
    best = _BEST_OF_SMALL if small else _BEST
    offered = sorted(
        (item for item in whole if quality.good_enough(item.label) and not _better_than(item.label, best)),
        key=lambda item: -item.size_bytes,
    )
    verdicts = [(item, _verdict(item, header, machine, wishes)) for item in offered]
    on_gpu = next((item for item, verdict in verdicts if verdict == "gpu"), None)
    runs = [item for item, verdict in verdicts if verdict in ("gpu", "split", "cpu")]
    if small and runs:
        return runs[0]
    if on_gpu is not None and (quality.good_enough(on_gpu.label, _LEAST) or usual not in runs):
        return on_gpu
    if usual in runs:
        return usual
    return next((item for item in runs if item.size_bytes < usual.size_bytes), runs[-1] if runs else usual)


def _verdict(item: ModelSet, header: GgufHeader, machine: Machine, wishes: Wishes) -> Verdict:
    label = quality.plain_name(item.label)
    return lists.judge(header, machine, wishes, size_bytes=item.size_bytes, label=label).verdict


def _better_than(label: str, other: str) -> bool:
    known, least = quality.of(label), quality.of(other)
    return known is not None and least is not None and known.kl_divergence < least.kl_divergence


def _nearest(sets: Sequence[ModelSet]) -> ModelSet | None:
    """The set whose quality is nearest to the usual one's; the smallest if no quality is known."""
    wanted = quality.TABLE[USUAL].kl_divergence

    def distance(item: ModelSet) -> tuple[float, int]:
        if quality.plain_name(item.label) in quality.NATIVE:
            return 0.0, item.size_bytes
        known = quality.of(item.label)
        return (abs(known.kl_divergence - wanted) if known else 9.0), item.size_bytes

    return min(sets, key=distance, default=None)
