"""The sampling parameters as the settings show them: groups, words, limits, and each term in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "optional_int", "choice", "lines", "bias"]


@dataclass(frozen=True)
class Field:
    """One parameter.

    Attributes:
        name: attribute of `SamplingParams`. label: words beside the control. tip: the term in one sentence.
        low, high, step, decimals: for numbers; the limits are those that make sense on screen, within the legal ones.
        choices: (value, words) for kind "choice". empty: what an empty optional number means.
    """

    name: str
    label: str
    tip: str
    kind: Kind = "float"
    low: float = 0.0
    high: float = 1.0
    step: float = 0.05
    decimals: int = 2
    choices: tuple[tuple[int, str], ...] = ()
    empty: str = ""


@dataclass(frozen=True)
class Group:
    title: str
    fields: tuple[Field, ...]


_BIG = 2**31 - 1

GROUPS: tuple[Group, ...] = (
    Group(
        "Choosing the next token",
        (
            Field(
                "temperature",
                "Temperature",
                "How freely the next token is chosen: 0 always takes the most probable one, higher values vary more.",
                high=100.0,
            ),
            Field("top_k", "Top-k", "Only the k most probable tokens count; 0 takes all.", "int", high=_BIG),
            Field(
                "top_p",
                "Top-p",
                "Only the smallest set of tokens whose probabilities add up to p is considered; 1 considers all.",
            ),
            Field(
                "min_p",
                "Min-p",
                "Tokens less probable than this share of the best token's probability are left out; 0 keeps all.",
            ),
            Field(
                "typical_p",
                "Typical-p",
                "Keeps tokens about as surprising as is typical at this place; 1 switches it off.",
            ),
            Field(
                "top_n_sigma",
                "Top-n sigma",
                "Keeps tokens whose score lies within n standard deviations of the best; -1 switches it off.",
                low=-1.0,
                high=100.0,
                step=0.5,
            ),
        ),
    ),
    Group(
        "Against repetition",
        (
            Field(
                "repeat_penalty",
                "Repeat penalty",
                "Makes tokens that occurred lately less probable by dividing their score; 1 is none.",
                low=0.01,
                high=10.0,
            ),
            Field(
                "repeat_last_n",
                "Penalty window",
                "How many of the last tokens the penalties look at; 0 is none, -1 the whole context.",
                "int",
                low=-1,
                high=_BIG,
            ),
            Field(
                "presence_penalty",
                "Presence penalty",
                "Subtracted once from the score of every token that occurred in the window.",
                low=-10.0,
                high=10.0,
            ),
            Field(
                "frequency_penalty",
                "Frequency penalty",
                "Subtracted from a token's score for each time it occurred in the window.",
                low=-10.0,
                high=10.0,
            ),
            Field(
                "dry_multiplier",
                "DRY strength",
                "DRY (don't repeat yourself) makes it harder to go on with a sequence that occurred before; 0 is off.",
                high=100.0,
                step=0.1,
            ),
            Field(
                "dry_base",
                "DRY base",
                "How fast the DRY penalty grows with the length of the repeated sequence.",
                low=1.0,
                high=100.0,
            ),
            Field(
                "dry_allowed_length",
                "DRY allowed length",
                "Repeated sequences up to this many tokens are not penalised by DRY.",
                "int",
                low=1,
                high=_BIG,
            ),
            Field(
                "dry_penalty_last_n",
                "DRY window",
                "How many of the last tokens DRY looks at; 0 is none, -1 the whole context.",
                "int",
                low=-1,
                high=_BIG,
            ),
            Field(
                "dry_sequence_breakers",
                "DRY breakers",
                "Texts that end a sequence for DRY, one a line; write \\n for a line end.",
                "lines",
            ),
        ),
    ),
    Group(
        "Other samplers",
        (
            Field(
                "xtc_probability",
                "XTC probability",
                "XTC (exclude top choices) leaves out the most probable tokens with this chance per token; 0 is off.",
            ),
            Field("xtc_threshold", "XTC threshold", "Only tokens above this probability count as top choices for XTC."),
            Field(
                "mirostat",
                "Mirostat",
                "Steers how surprising the text is as a whole; replaces top-k, top-p, min-p and typical-p.",
                "choice",
                choices=((0, "off"), (1, "version 1"), (2, "version 2")),
            ),
            Field(
                "mirostat_tau",
                "Mirostat tau",
                "The surprise that Mirostat aims at; lower is more focused.",
                low=0.01,
                high=100.0,
                step=0.5,
            ),
            Field(
                "mirostat_eta",
                "Mirostat eta",
                "How fast Mirostat corrects itself.",
                low=0.0001,
                high=10.0,
                step=0.05,
                decimals=4,
            ),
            Field(
                "logit_bias",
                "Logit bias",
                "Added to the score of single tokens, one a line as token id: number; -1e9 bans a token.",
                "bias",
            ),
        ),
    ),
    Group(
        "Length and repeatability",
        (
            Field(
                "max_tokens",
                "Longest answer",
                "Most tokens of an answer; empty lets the model end it, or the context.",
                "optional_int",
                low=1,
                high=_BIG,
                empty="no limit",
            ),
            Field(
                "stop",
                "Stop texts",
                "Texts that end the answer and are cut off, one a line; write \\n for a line end.",
                "lines",
            ),
            Field(
                "seed",
                "Seed",
                "The number the random choices start from; the same seed gives the same answer. Empty draws a new one.",
                "optional_int",
                low=0,
                high=2**32 - 1,
                empty="new each time",
            ),
        ),
    ),
)
