"""What the panel tells of one token: rows of labels and figures, with the terms of the glossary."""

from __future__ import annotations

from desktop import figures
from desktop.views.trace import pieces, words
from desktop.views.trace.figure_rows import Row
from engine.events import TokenDetail
from engine.sampling import SamplingParams
from engine.trace import Step, Trace

#: stage -> term of the glossary
TERMS = {
    "format": "answer_format",
    "logit_bias": "logit_bias",
    "penalties": "repeat_penalty",
    "dry": "dry",
    "top_n_sigma": "top_n_sigma",
    "top_k": "top_k",
    "typical": "typical_p",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc": "xtc",
    "temperature": "temperature",
    "mirostat": "mirostat",
}
STAGE_TIPS = {
    "format": "Tokens that the answer's format allows at this place",
    "logit_bias": "Numbers added to the scores of single tokens",
    "penalties": "Tokens that occurred lately get a lower score",
    "dry": "Tokens that would go on with a repeated sequence get a lower score",
    "top_n_sigma": "Keeps scores within n standard deviations of the best",
    "top_k": "Keeps the k most probable tokens",
    "typical": "Keeps tokens about as surprising as is typical here",
    "top_p": "Keeps the smallest set of tokens whose probabilities add up to p",
    "min_p": "Leaves out tokens less probable than this share of the best one",
    "xtc": "Now and then leaves out the most probable tokens",
    "temperature": "Below 1 the probable tokens become more probable, above 1 less",
    "mirostat": "Steers how surprising the text is as a whole",
}
_NOT_TOLD = "The model process did not tell it"


def place_words(trace: Trace, index: int) -> tuple[str, str]:
    """Where a token stands and how long it took, and what that means."""
    took, why = words.step_time(trace, index)
    position = f"position {trace.n_prompt + index + 1:,}" if trace.n_prompt else ""
    return " · ".join(part for part in (position, took) if part), f"Its place in the context. {why}"


def chance_rows(step: Step) -> list[Row]:
    """How probable a token was."""
    p, bits = words.probability(step), words.surprise(step)
    detail = step.detail
    rows = [
        Row(
            "Probability",
            words.percent(p),
            "Before any sampler, of all tokens in the vocabulary" if p is not None else _NOT_TOLD,
            "probability",
        ),
        Row(
            "Surprise",
            words.bits(bits),
            "1 bit: one chance in two, 2 bits: one in four" if bits is not None else _NOT_TOLD,
            "logprob",
        ),
        Row(
            "Entropy",
            words.bits(detail.entropy_bits if detail is not None else None),
            "The surprise to be expected at this place: 0 where only one token made sense"
            if detail is not None
            else _NOT_TOLD,
            "entropy",
        ),
    ]
    if step.n_rejected:
        rows.append(
            Row("Guesses thrown away", f"{step.n_rejected:,}", "Tokens guessed ahead that this step found wrong")
        )
    return rows


def chosen_rows(
    detail: TokenDetail | None, label: str, sampling: SamplingParams, n_vocab: int | None, *, forced: bool = False
) -> list[Row]:
    """How a token was chosen: the stages and the draw. n_vocab: None where the model is not loaded any more."""
    if detail is None:
        return [Row("Nothing was recorded of this step", figures.DASH, _NOT_TOLD)]
    rows = []
    if n_vocab:
        rows.append(Row("vocabulary", f"{n_vocab:,} tokens", "All tokens that the model knows", "vocabulary"))
    for stage in detail.stages:
        said, did = words.stage_words(stage, sampling)
        rows.append(Row(said, did, STAGE_TIPS.get(stage.name, ""), TERMS.get(stage.name, "")))
    if forced:
        rows.append(Row("not drawn", label, "The answer was made to begin with this token", accent=True))
        return rows
    draw, why = words.draw_words(detail)
    if detail.draw_to > detail.draw_from:
        rows.append(Row("its share of what was left", words.percent(detail.chosen_p), why))
    rows.append(Row(draw, label, why, "draw", accent=True))
    return rows


def label_of(step: Step) -> str:
    return pieces.label(step.piece)
