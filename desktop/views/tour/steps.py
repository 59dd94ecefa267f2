"""The steps of the tour in words, with the figures of one real request; no Qt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from desktop import figures
from desktop.views.anatomy.words import size
from desktop.views.trace import pieces, token_rows
from desktop.views.trace.figure_rows import Row
from desktop.views.trace.prompt_text import PromptText
from desktop.views.trace.words import duration, percent, plural, probability, reading_words
from engine.events import ModelInfo
from engine.trace import Trace

_WRITING = "Known when the answer is complete"
_OTHER_MODEL = "Known while the model that wrote this is loaded"
_ROLES = {"system": "system prompt", "user": "you", "assistant": "the model", "tool": "a tool"}


@dataclass(frozen=True)
class Facts:
    """What is known so far.

    Attributes:
        trace, text: of the question. follow, follow_text: of the question after it; None until it is asked.
        model: the loaded model, where it is the one that answered.
        chosen: the token of the answer that is looked at.
    """

    trace: Trace
    text: PromptText | None = None
    follow: Trace | None = None
    follow_text: PromptText | None = None
    model: ModelInfo | None = None
    chosen: int = 0

    @property
    def complete(self) -> bool:
        return self.trace.marks is not None

    @property
    def n_template(self) -> int | None:
        """Tokens of the prompt that the chat template wrote."""
        return sum(1 for owner in self.text.owners if owner < 0) if self.text is not None else None

    @property
    def n_used(self) -> int:
        """Tokens of the context that the prompt and the answer take."""
        return self.trace.n_prompt + len(self.trace.steps)


@dataclass(frozen=True)
class TourStep:
    """Declaration of one step.

    Attributes:
        id: its name in code. title: in the list. term: of the glossary.
        words: a paragraph. rows: figures below it. shows: names of the exhibits that stand under both.
    """

    id: str
    title: str
    term: str
    words: Callable[[Facts], str]
    rows: Callable[[Facts], list[Row]]
    shows: tuple[str, ...]


def took(trace: Trace, *names: str) -> float | None:
    """Seconds of these parts of the time line together; None while the answer is written."""
    return sum(part.took_s for part in trace.parts() if part.name in names) if trace.marks is not None else None


def prefill_rate(trace: Trace) -> float | None:
    """Tokens a second while the prompt was read; None where nothing was, or it is not known yet."""
    if trace.timings.prefill_tps is not None:
        return trace.timings.prefill_tps
    n, seconds = sum(chunk.count for chunk in trace.chunks), sum(chunk.took_s for chunk in trace.chunks)
    return n / seconds if seconds > 0 else None


def _time_row(label: str, trace: Trace, tip: str, *names: str) -> Row:
    seconds = took(trace, *names)
    return Row(label, duration(seconds), tip if seconds is not None else _WRITING)


def _rate_row(label: str, rate: float | None, tip: str, term: str) -> Row:
    said = f"{figures.rate(rate)} tok/s" if rate is not None else figures.DASH
    return Row(label, said, tip if rate is not None else "There were too few tokens to tell, or it is not over", term)


# ---------------------------------------------------------------- 1 to 3: text becomes tokens


def _ask_words(facts: Facts) -> str:
    n = len(facts.trace.messages)
    if n == 1:
        return (
            "Everything begins with text. Your question is a message with the role “user”. It goes to the model alone."
        )
    return (
        f"Everything begins with text. Your question goes to the model together with what stands before it, because "
        f"the model itself remembers nothing: {n:,} messages. Each has a role that says who speaks."
    )


def _ask_rows(facts: Facts) -> list[Row]:
    rows = []
    for message in facts.trace.messages[-6:]:
        text = pieces.shortened(" ".join(message.text.split()), 160)
        rows.append(Row(_ROLES.get(message.role, message.role), f"{len(message.text):,} characters", text, "role"))
    return rows


def _template_words(facts: Facts) -> str:
    words = (
        "A language model can do one thing: go on with a text. So the chat template, which comes with the model, "
        "writes all messages into one text, with marks that say who speaks. The text ends where the answer has "
        "to begin."
    )
    n = facts.n_template
    if n is not None and facts.trace.n_prompt:
        words += f" Of the {plural(facts.trace.n_prompt, 'token')}, the template wrote {n:,}."
    return words


def _template_rows(facts: Facts) -> list[Row]:
    tip = "The template was filled in, and the text cut into tokens"
    return [_time_row("Template and tokenizer together", facts.trace, tip, "template")]


def _tokens_words(facts: Facts) -> str:
    words = (
        "The model does not see letters. The tokenizer cuts the text into tokens, which are words or parts of words "
        "from a fixed vocabulary, and gives the model the number of each. Colours tell the messages apart, grey is the "
        "template. Rest the mouse on a token to see its number."
    )
    if facts.text is not None and len(facts.text):
        n_chars = len(facts.text.text)
        words += f" Here {n_chars:,} characters became {plural(len(facts.text), 'token')}."
    return words


def _tokens_rows(facts: Facts) -> list[Row]:
    n_vocab = f"{facts.model.n_vocab:,} tokens" if facts.model is not None else figures.DASH
    tip = "All tokens that the model knows" if facts.model is not None else _OTHER_MODEL
    rows = [Row("Vocabulary", n_vocab, tip, "vocabulary")]
    if facts.text is not None and len(facts.text):
        each = len(facts.text.text) / len(facts.text)
        rows.append(Row("Characters per token", f"{each:.1f}", "Of this prompt, with what the template wrote", "token"))
    return rows


# ---------------------------------------------------------------- 4 and 5: reading


def _prefill_words(facts: Facts) -> str:
    trace = facts.trace
    n_read = trace.n_read if trace.finish_reason is not None else trace.n_prompt - trace.n_cached
    if n_read <= 0 and trace.n_known >= trace.n_prompt:
        return "Before it can write, the model has to read the prompt. This time all of it was in the cache already."
    words = (
        "Before it can write, the model has to read: every token of the prompt goes through all layers. Many tokens "
        f"are computed in one step, which is called prefill. Here {plural(n_read, 'token')}"
    )
    seconds = took(trace, "prefill")
    words += f" took {duration(seconds)}." if seconds is not None else " have to be read."
    if trace.n_cached:
        words += f" The first {trace.n_cached:,} were in the cache from before."
    reading, writing = prefill_rate(trace), trace.timings.decode_tps
    if reading is not None and writing is not None and reading > 1.2 * writing:
        words += (
            f" That is {reading / writing:.1f} times as fast as writing, where each token waits for the one before."
        )
    return words


def _prefill_rows(facts: Facts) -> list[Row]:
    trace = facts.trace
    return [
        Row("Tokens read", f"{trace.n_read:,} of {trace.n_prompt:,}", "The others came from the cache", "prefill"),
        _rate_row("Speed of reading", prefill_rate(trace), "Tokens that were read, by the time it took", "prefill"),
        _time_row("Until the first token", trace, "All that happens before the answer begins", *_BEFORE),
    ]


_BEFORE = ("load", "queue", "template", "wait", "cache", "prefill", "sample")


def _cache_words(facts: Facts) -> str:
    words = (
        "For each token, the attention of every layer has computed a key and a value. Later tokens look at them, so "
        "they are kept: that is the KV cache. Without it, all of the text would have to be read again for "
        "each new token."
    )
    if facts.trace.n_ctx:
        words += f" Prompt and answer take {facts.n_used:,} of the {facts.trace.n_ctx:,} tokens that the context holds."
    return words


def _cache_rows(facts: Facts) -> list[Row]:
    n_ctx = facts.trace.n_ctx
    rows = [
        Row(
            "Tokens in the context",
            f"{facts.n_used:,} of {n_ctx:,}" if n_ctx else f"{facts.n_used:,}",
            "Of the prompt and of the answer",
            "context_window",
        )
    ]
    model = facts.model
    if model is None or not model.kv_bytes or not model.n_ctx:
        return [*rows, Row("Memory of the KV cache", figures.DASH, _OTHER_MODEL, "kv_cache")]
    kinds = model.kv_type_k.upper()
    if model.kv_type_v != model.kv_type_k:
        kinds += f" and {model.kv_type_v.upper()}"
    each = model.kv_bytes / model.n_ctx
    return [
        *rows,
        Row("Memory of the KV cache", size(model.kv_bytes), f"For {model.n_ctx:,} tokens, as {kinds}", "kv_cache"),
        Row("On average for one token", size(round(each)), "The whole cache by the tokens it has room for", "kv_cache"),
        Row("For this prompt and answer", f"about {size(round(each * facts.n_used))}", "At that average", "kv_cache"),
    ]


# ---------------------------------------------------------------- 6 to 8: writing


def _decode_words(facts: Facts) -> str:
    trace = facts.trace
    words = (
        "Now it writes. All layers are computed for one token, and out comes a score for every token of the "
        "vocabulary: how well it would go on from here. One is taken and put behind the text, and all begins anew for "
        "the next. The tint shows how sure it was: the stronger, the less probable was what was taken. Click a token "
        "to see what could have come instead."
    )
    sure = [p for p in map(probability, trace.steps) if p is not None]
    if sure and facts.complete:
        clear = sum(1 for p in sure if p >= 0.9)
        words += f" Of {plural(len(sure), 'token')}, {clear:,} had a probability of 90 % or more."
    return words


def _decode_rows(facts: Facts) -> list[Row]:
    trace = facts.trace
    return [
        Row("Tokens written", f"{len(trace.steps):,}", "", "decode"),
        _rate_row(
            "Speed of writing", trace.timings.decode_tps, "From the first token to the last", "tokens_per_second"
        ),
    ]


def _sampling_words(facts: Facts) -> str:
    trace = facts.trace
    words = (
        "Which token is taken is not up to the model but to the samplers. They change scores, sort out what is too "
        "improbable, and then one of those that are left is drawn at random."
    )
    if trace.sampling.temperature <= 0:
        return f"{words} Here the temperature is 0: the most probable token is taken each time, and nothing is drawn."
    words += f" With the same seed, {trace.seed}, the draws come out the same."
    if 0 <= facts.chosen < len(trace.steps):
        step = trace.steps[facts.chosen]
        words += f" Below: token {facts.chosen + 1:,}, “{token_rows.label_of(step)}”, and what could have come instead."
    return words


def _sampling_rows(facts: Facts) -> list[Row]:
    trace = facts.trace
    if not 0 <= facts.chosen < len(trace.steps):
        return []
    step = trace.steps[facts.chosen]
    n_vocab = facts.model.n_vocab if facts.model is not None else None
    label = token_rows.label_of(step)
    return token_rows.chosen_rows(step.detail, label, trace.sampling, n_vocab, forced=step.forced)


def _stop_words(facts: Facts) -> str:
    trace = facts.trace
    match trace.finish_reason:
        case None:
            return "The answer is still being written."
        case "length" if trace.sampling.max_tokens is not None and len(trace.steps) >= trace.sampling.max_tokens:
            return (
                f"It ended because the limit of {plural(trace.sampling.max_tokens, 'token')} for an answer was reached."
            )
        case "length":
            return "It ended because the context was full."
        case "cancelled":
            return "It ended because you stopped it."
        case "error":
            return "It ended because of an error. What had been written was kept."
    if trace.end is None:
        return "It ended where one of the texts came at which an answer is to stop."
    label = token_rows.label_of(trace.end)
    said = f"The model ended the answer itself: it chose “{label}”, a token that says “this is all”"
    chance = probability(trace.end)
    return f"{said}. Its probability was {percent(chance)}." if chance is not None else f"{said}."


def _stop_rows(facts: Facts) -> list[Row]:
    trace = facts.trace
    wall = duration(trace.wall_s) if trace.wall_s is not None else figures.DASH
    return [Row("The whole request", wall, _WRITING if trace.wall_s is None else "From asking to the end", "trace")]


# ---------------------------------------------------------------- 9: going on


def _follow_words(facts: Facts) -> str:
    if facts.follow is None:
        return (
            "Ask a follow-up. The model remembers nothing, so the whole conversation is sent again with it. But its "
            "beginning is the same as before, and the KV cache still holds its keys and values."
        )
    if not facts.follow.n_prompt:
        return "The follow-up was sent."
    return reading_words(facts.follow)


def _follow_rows(facts: Facts) -> list[Row]:
    follow = facts.follow
    if follow is None or not follow.n_prompt:
        return []
    n_read = follow.n_prompt - follow.n_cached
    rows = [
        Row("Tokens of the prompt", f"{follow.n_prompt:,}", "The whole conversation with the follow-up", "prompt"),
        Row("From the cache", f"{follow.n_cached:,}", "Their keys and values were still there", "prefix_caching", True),
        Row("Read now", f"{n_read:,}", "", "prefill"),
        _time_row("Time of reading", follow, "What was not in the cache", "prefill"),
    ]
    rate = prefill_rate(facts.trace)
    whole = f"about {duration(follow.n_prompt / rate)}" if rate else figures.DASH
    tip = "An estimate, at the speed at which the first prompt was read" if rate else "Nothing was read the first time"
    return [*rows, Row("Without the cache", whole, tip, "prefix_caching")]


STEPS: tuple[TourStep, ...] = (
    TourStep("ask", "You ask", "role", _ask_words, _ask_rows, ("messages",)),
    TourStep("template", "Chat template", "chat_template", _template_words, _template_rows, ("rendered",)),
    TourStep("tokens", "Tokenizer", "tokenizer", _tokens_words, _tokens_rows, ("chips",)),
    TourStep("prefill", "Prefill", "prefill", _prefill_words, _prefill_rows, ("chunks",)),
    TourStep("cache", "KV cache", "kv_cache", _cache_words, _cache_rows, ("bar",)),
    TourStep("decode", "Decode", "decode", _decode_words, _decode_rows, ("written",)),
    TourStep("sampling", "Sampling", "sampling", _sampling_words, _sampling_rows, ("written", "alternatives")),
    TourStep("stop", "Stop", "finish_reason", _stop_words, _stop_rows, ("time",)),
    TourStep("follow", "Follow-up", "prefix_caching", _follow_words, _follow_rows, ("follow",)),
)
