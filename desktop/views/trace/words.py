"""What a trace says, in words and figures; no Qt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from desktop import figures
from desktop.figures import DASH
from desktop.views.trace import pieces
from engine.events import Stage, TokenDetail
from engine.message import Reread
from engine.sampling import SamplingParams
from engine.trace import Chunk, Step, Trace

_LN2 = math.log(2.0)
#: tokens at the end of an answer that were chosen and never read: no token came after them
_LAST_OF_ANSWER = 2


def duration(value_s: float | None) -> str:
    """As "0.4 ms", "197 ms", "3.38 s", "2 min 05 s"."""
    if value_s is None or not math.isfinite(value_s) or value_s < 0:
        return DASH
    if value_s >= 0.9995:
        return figures.seconds(value_s)
    ms = value_s * 1000
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 0.05 else "0 ms"


def percent(p: float | None) -> str:
    """A probability as "41.2 %"; tiny ones as "< 0.01 %"."""
    if p is None or not math.isfinite(p) or p < 0:
        return DASH
    value = 100 * min(1.0, p)
    if 0 < value < 0.01:
        return "< 0.01 %"
    return f"{value:.2f} %" if value < 1 else f"{value:.1f} %"


def probability(step: Step) -> float | None:
    """Of the token before any sampler; None where it was not told."""
    return None if step.logprob is None or math.isnan(step.logprob) else math.exp(min(0.0, step.logprob))


def bits(value: float | None) -> str:
    return DASH if value is None or not math.isfinite(value) or value < 0 else f"{value:.2f} bits"


def surprise(step: Step) -> float | None:
    """In bits: 1 for a probability of one half."""
    return None if step.logprob is None or not math.isfinite(step.logprob) else max(0.0, -step.logprob / _LN2)


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" + ("" if n == 1 else "s")


# ---------------------------------------------------------------- the time line


@dataclass(frozen=True)
class PartLook:
    """token, pattern: as in `widgets.memory_bar`. words: name in the legend. tip: what happens in it."""

    token: str
    pattern: str
    words: str
    tip: str


PARTS: dict[str, PartLook] = {
    "load": PartLook("mem_free", "upright", "loading the model", "The request waited for the model to be loaded"),
    "queue": PartLook("mem_other", "solid", "queue", "The request waited until the worker took it up"),
    "template": PartLook(
        "mem_compute", "solid", "template and tokenizer", "The messages became one text, and the text became tokens"
    ),
    "wait": PartLook("mem_other", "upright", "waiting for a slot", "All slots of the context were busy"),
    "cache": PartLook(
        "mem_compute", "rising", "cache", "Keys and values that were there already were copied or read from disk"
    ),
    "prefill": PartLook(
        "mem_weights", "solid", "prefill", "The model read the tokens of the prompt that were not in the cache"
    ),
    "sample": PartLook("mem_kv", "falling", "first sample", "The first token was chosen"),
    "decode": PartLook("accent", "solid", "decode", "The model wrote one token after the other"),
    "end": PartLook("mem_other", "falling", "end", "From the last token to the end of the request"),
}
_UNKNOWN = PartLook("mem_other", "solid", "", "")


def look_of(name: str) -> PartLook:
    return PARTS.get(name, _UNKNOWN)


def part_words(trace: Trace, name: str, took_s: float) -> str:
    """One part of the time line, for the legend: "prefill 61 of 1,721 tokens, 197 ms (1,660 came from the cache)"."""
    words, time = look_of(name).words or name, duration(took_s)
    if name == "prefill":
        time = f"{_prefilled(trace)}, {time}{_from_cache(trace)}"
    ended = f", {_HOW_ENDED.get(trace.finish_reason or '', 'then it ended')}" if name == cut_short(trace) else ""
    return f"{words} {time}{ended}"


_HOW_ENDED = {"cancelled": "then it was stopped", "error": "then it failed"}


def cut_short(trace: Trace) -> str:
    """The part of the time line that was not over when the request ended; "" where all were."""
    parts = trace.parts()
    return parts[-1].name if parts and parts[-1].name != "end" else ""


def _prefilled(trace: Trace) -> str:
    if trace.n_forced:  # tokens that the answer was made to begin with are read behind the prompt
        if cut_short(trace):
            return plural(sum(chunk.count for chunk in trace.chunks), "token")
        return f"up to token {trace.n_forced:,} of the answer"
    return f"{trace.n_read:,} of {plural(trace.n_prompt, 'token')}"


def _from_cache(trace: Trace) -> str:
    if not trace.n_cached:
        return ""
    of_prompt = " of the prompt" if trace.n_forced else ""
    return f" ({trace.n_cached:,}{of_prompt} came from the cache)"


def decode_words(trace: Trace, took_s: float) -> str:
    """Inside the bar: "decode · 163 tokens · 20.7 ms each"; "" where there is nothing to tell."""
    n = len(trace.steps) - trace.n_forced  # those that the answer was made to begin with were read, not written
    if n < 2:
        return ""
    return f"decode · {plural(n, 'token')} · {duration(took_s / (n - 1))} each"


def timeline_title(trace: Trace) -> str:
    """ "One request, 3.61 s"."""
    parts = trace.parts()
    if not parts:
        return "One request"
    return f"One request, {duration(parts[-1].to_s - parts[0].from_s)}"


def timeline_note(trace: Trace) -> str:
    """Beside the title."""
    if trace.parts():
        return "hover any part to see what it is"
    if trace.finish_reason is None:
        return "its time line comes with the end of the answer"
    return "the model process has not told its times"


def timeline_words(trace: Trace) -> str:
    """All of the time line, for a screen reader."""
    parts = trace.parts()
    if not parts:
        return timeline_note(trace)
    return f"{timeline_title(trace)}. " + ". ".join(part_words(trace, part.name, part.took_s) for part in parts)


# ---------------------------------------------------------------- chunks


def chunk_words(chunk: Chunk) -> tuple[str, str, str, str]:
    """Which tokens, when it began, how long it took, how fast."""
    last = chunk.first + chunk.count
    span = f"{chunk.first + 1:,}" if chunk.count == 1 else f"{chunk.first + 1:,} to {last:,}"
    rate = figures.rate(chunk.count / chunk.took_s) if chunk.took_s > 0 else DASH
    return span, duration(chunk.began_s), duration(chunk.took_s), rate


def chunks_title(trace: Trace) -> str:
    """How the prompt was read, in one line."""
    n_read = sum(chunk.count for chunk in trace.chunks)
    took_s = sum(chunk.took_s for chunk in trace.chunks)
    if not trace.chunks:
        return "nothing had to be read" if trace.steps else "not read yet"
    rate = f", {figures.rate(n_read / took_s)} tok/s" if took_s > 0 else ""
    return f"{plural(n_read, 'token')} in {plural(len(trace.chunks), 'step')}{rate}"


# ---------------------------------------------------------------- one token


def step_time(trace: Trace, index: int) -> tuple[str, str]:
    """How long a token took, and where that is unknown or not its own, why."""
    step = trace.steps[index]
    if step.forced:
        return "", "It was given, not chosen"
    if index == 0 or trace.steps[index - 1].forced:
        marks = trace.marks
        if marks is None or marks.prefilled_s is None:
            return DASH, "Known when the answer is complete"
        return duration(max(0.0, step.time_s - marks.prefilled_s)), "From the end of reading the prompt to this token"
    took_s = step.time_s - trace.steps[index - 1].time_s
    why = "From the token before to this one"
    if step.drafted:
        why = "It had been guessed, so it was only checked, together with the token before"
    return duration(max(0.0, took_s)), why


def stage_words(stage: Stage, sampling: SamplingParams) -> tuple[str, str]:
    """What a sampler was set to, and what it did: ("top-k 20", "20 left")."""
    left = f"{stage.n_left:,} left"
    changed = f"{stage.n_changed:,}"
    match stage.name:
        case "format":
            return "answer format", f"{stage.n_left:,} allowed"
        case "logit_bias":
            return f"logit bias, {plural(len(sampling.logit_bias), 'token')}", f"{changed} changed"
        case "penalties":
            return _penalties(sampling), f"{changed} changed" if stage.n_changed else "nothing to change"
        case "dry":
            done = f"{changed} lowered" if stage.n_changed else "nothing to change"
            return f"DRY {_plain(sampling.dry_multiplier)}", done
        case "top_n_sigma":
            return f"top-n sigma {_plain(sampling.top_n_sigma)}", left
        case "top_k":
            return f"top-k {sampling.top_k:,}", left
        case "typical":
            return f"typical-p {_plain(sampling.typical_p)}", left
        case "top_p":
            return f"top-p {_plain(sampling.top_p)}", left
        case "min_p":
            return f"min-p {_plain(sampling.min_p)}", left
        case "xtc":
            return f"XTC {_plain(sampling.xtc_probability)} over {_plain(sampling.xtc_threshold)}", left
        case "temperature":
            return f"temperature {_plain(sampling.temperature)}", _temperature(sampling.temperature)
        case "mirostat":
            return f"Mirostat {sampling.mirostat}, tau {_plain(sampling.mirostat_tau)}", left
        case _:
            return stage.name, left


def _plain(value: float) -> str:
    return f"{value:g}"


def _penalties(sampling: SamplingParams) -> str:
    said = []
    if sampling.repeat_penalty != 1.0:
        said.append(f"repeat penalty {_plain(sampling.repeat_penalty)}")
    if sampling.presence_penalty:
        said.append(f"presence {_plain(sampling.presence_penalty)}")
    if sampling.frequency_penalty:
        said.append(f"frequency {_plain(sampling.frequency_penalty)}")
    return ", ".join(said) or "penalties"


def _temperature(value: float) -> str:
    if value <= 0:
        return "only the best"
    return "sharpened" if value < 1 else "flattened" if value > 1 else "unchanged"


def draw_words(detail: TokenDetail) -> tuple[str, str]:
    """What the draw was, and why it came out so."""
    if not detail.stages:
        return "not drawn", "The answer was made to begin with this token"
    if detail.draw_to <= detail.draw_from:
        return "no draw: the most probable", "With temperature 0, or with one token left, there is nothing to draw"
    span = f"draw from {detail.draw_from:.3f} to {detail.draw_to:.3f}"
    return span, (
        f"A random number between 0 and 1 fell between {detail.draw_from:.4f} and {detail.draw_to:.4f}, the part that "
        f"stands for this token: {percent(detail.chosen_p)} of what was left"
    )


def alternatives_words(step: Step, most: int = 5) -> str:
    """The most probable tokens of a step, a line each."""
    if step.detail is None:
        return ""
    best = step.detail.candidates[:most]
    return "\n".join(f"{pieces.label(c.piece)}  {percent(math.exp(min(0.0, c.logprob)))}" for c in best)


# ---------------------------------------------------------------- why it was read again

_CAUSES = {
    "changed": "what stands there is not the same as the last time",
    "tokens": "the same text is cut into other tokens now",
    "thinking": "the model's template leaves out what it thought before",
    "dropped": "older turns were left out, and the rest could not be moved",
    "window": "the model's sliding window does not reach back that far",
    "state": "the state of the model's recurrent layers cannot go back",
    "given_up": "other chats needed its room in the context",
    "stopped": "computing was interrupted",
}


def reading_title(trace: Trace) -> str:
    """The question about what was read."""
    n_read = trace.n_prompt - trace.n_cached
    if trace.n_known < trace.n_prompt:
        return "What of it has to be read?" if trace.finish_reason is None else "What of it had to be read?"
    if not trace.n_cached:
        return "Why was all of it read?"
    if trace.reread is not None:
        return "Why was part of it read again?"
    return "Why was so little read?" if n_read <= trace.n_prompt / 2 else "Why was so much read?"


def reading_words(trace: Trace) -> str:
    """Its answer: what came from the cache, where reading began, and why there."""
    n_read, n = trace.n_prompt - trace.n_cached, trace.n_prompt
    said = []
    if trace.n_cached:
        said.append(
            f"The first {plural(trace.n_cached, 'token')} {'equals' if trace.n_cached == 1 else 'equal'} what had been "
            "read before, so their keys and values were still there."
        )
        if trace.n_restored:
            said.append(f"{trace.n_restored:,} of them came from disk.")
        if trace.n_shifted:
            said.append(f"{trace.n_shifted:,} of them were moved to where turns had been that no longer fit.")
        said.append(_began(trace, n_read))
    else:
        said.append(f"Nothing in the cache began like this prompt, so all {plural(n, 'token')} had to be read.")
    if trace.reread is not None:
        said.append(_reread(trace.reread))
    if trace.finish_reason is not None and trace.n_known < trace.n_prompt:
        said.append(f"The request ended when {trace.n_read:,} of the {plural(n_read, 'token')} had been read.")
    return " ".join(said)


def _began(trace: Trace, n_read: int) -> str:
    if n_read <= 0:
        return "Nothing of it had to be read."
    owners = trace.prompt_owners
    first = next((i for i in range(trace.n_cached, len(owners)) if owners[i] >= 0), -1)
    owner = owners[first] if first >= 0 else -1
    if owner < 0 or owner >= len(trace.messages):
        return f"Reading began at token {trace.n_cached + 1:,}."
    if trace.messages[owner].role == "assistant" and trace.reread is None:
        rest = sum(1 for other in owners[first : first + _LAST_OF_ANSWER + 1] if other == owner)
        if rest <= _LAST_OF_ANSWER:
            return "Reading began where the last answer ended: what is written last is only read with what follows."
    role = trace.messages[owner].role
    last_user = max((i for i, m in enumerate(trace.messages) if m.role == "user"), default=-1)
    if owner == last_user:
        return "Reading began at your new message."
    name = {"system": "the system prompt", "user": "an earlier message of yours", "assistant": "an earlier answer"}
    return f"Reading began at {name.get(role, 'a message')}."


def _reread(reread: Reread) -> str:
    said = f"{plural(reread.n_tokens, 'token')} had been read before and {_was(reread.n_tokens)} read again: "
    said += f"{_CAUSES.get(reread.cause, reread.cause)}."
    if reread.old or reread.new:
        old, new = (pieces.shortened(pieces.marked(text)) for text in (reread.old, reread.new))
        if reread.old == reread.new:
            said += f" It began at token {reread.index + 1:,}, “{new}”."
        elif reread.old and reread.new:
            said += f" Token {reread.index + 1:,} is the first that differs: “{new}” where “{old}” had been."
        elif reread.new:
            said += f" It began at token {reread.index + 1:,}, “{new}”, where nothing had been."
        else:
            said += f" It began at token {reread.index + 1:,}, where “{old}” had been."
    return said


def _was(n: int) -> str:
    return "was" if n == 1 else "were"
