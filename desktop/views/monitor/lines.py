"""The lines of the monitor: each figure with its unit, or a dash with the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from desktop import figures
from desktop.views.monitor.feed import MonitorFeed
from desktop.views.monitor.places import Place
from desktop.views.monitor.rows import Row
from desktop.views.monitor.runs import step_times
from engine.events import Sampled
from engine.message import GenerationRecord

DASH = figures.DASH
_NO_MODEL = "No model is loaded"
_NO_ANSWER = "No answer has been written yet"
#: of all processors, used by other programs, that make an answer slower
_BUSY_PERCENT = 20.0
_ALL_CACHED = "Nothing had to be read: all was in the KV cache"
_NOT_READ = "No step of reading has been measured"


def percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f} %"


def signed(share: float) -> str:
    """0.004 -> "+0.4 %"."""
    return f"{share * 100:+.1f} %".replace("-", "\u2212")


def milliseconds(value_s: float | None) -> str:
    """ "20.7 ms", "312 ms", "1.20 s"."""
    if value_s is None or value_s < 0:
        return DASH
    if value_s >= 1:
        return figures.seconds(value_s)
    ms = value_s * 1000
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def exact(n_bytes: int | None) -> str:
    return DASH if n_bytes is None else f"{n_bytes:,} bytes"


# ---- speed


def main_rate(feed: MonitorFeed) -> tuple[float | None, str]:
    """The big figure and what it is: "now", "reading the prompt", "last answer", "no answer yet"."""
    if feed.runs:
        rate = feed.decode_now
        if rate is None and any(run.speeds.reading for run in feed.runs.values()):
            return None, "reading the prompt"
        return rate, "live" if rate is not None else "waiting"
    if feed.last is not None and feed.last.timings.ttft_s is not None:
        return feed.last.timings.decode_tps, "last answer"
    return None, "no answer yet"


def speed_head(feed: MonitorFeed, state: str) -> Row:
    tips = {
        "live": "What is written now, by the clock of the model's process, over the last two seconds",
        "waiting": "Nothing has come for a while",
        "last answer": "(tokens - 1) / time after the first, of the answer written last",
        "no answer yet": _NO_ANSWER,
        "reading the prompt": "Nothing is written before the prompt has been read",
    }
    n = len(feed.runs)
    value = f"{state}, {n} answers" if n > 1 else state
    return Row("Speed", f"{value}, paused" if feed.paused else value, tips[state], kind="head")


def speed_rows(feed: MonitorFeed, *, full: bool) -> list[Row]:
    run, record = feed.current, feed.last
    if run is not None:
        speeds = run.speeds
        ttft, n_prompt, n_cached = None if run.late else speeds.ttft_s, speeds.n_prompt, speeds.n_cached
        prefill, n_written, mean = feed.prefill_now or speeds.prefill_tps, run.n_written, speeds.decode_tps
    elif record is not None:
        usage, timings = record.usage, record.timings
        ttft, n_prompt, n_cached = timings.ttft_s, usage.prompt_tokens, usage.cached_tokens
        prefill, n_written, mean = timings.prefill_tps, usage.completion_tokens, timings.decode_tps
    else:
        ttft = prefill = mean = None
        n_prompt = n_cached = n_written = 0
    why = _NO_ANSWER
    if run is not None:
        why = "It came before this could be seen" if run.late else "The first token has not come yet"
    new = f"Prefill ({n_prompt - n_cached:,} new of {n_prompt:,})" if n_prompt else "Prefill"
    no_prefill = why if not n_prompt else _NOT_READ if n_prompt > n_cached else _ALL_CACHED
    rows = [
        Row("First token", figures.seconds(ttft), "" if ttft is not None else why, "ttft"),
        Row(new, _rate(prefill), "" if prefill is not None else no_prefill, "prefill"),
        *slow_rows(feed),
    ]
    if full:
        rows += [
            Row(
                "Decode, mean of the answer",
                _rate(mean),
                "(tokens - 1) / time after the first" if mean is not None else "It takes two tokens",
                "decode",
            ),
            _expected(feed),
            Row(
                "Tokens written",
                figures.count(n_written) if (run or record) else DASH,
                "" if (run or record) else why,
                "token",
            ),
            *_first_token_parts(None if run is not None else record, feed.parts),
            *_step_rows(feed),
        ]
    return rows


def slow_rows(feed: MonitorFeed) -> list[Row]:
    """One line where it writes more slowly than the plan of the load predicted: what else uses the processor now."""
    fit = feed.model.fit if feed.model is not None else None
    rate, state = main_rate(feed)
    if fit is None or rate is None or state != "live" or not 0 < rate < fit.decode_tps_low:
        return []
    n, others = len(feed.runs), others_percent(feed.sample)
    tip = f"At least {figures.rate(fit.decode_tps_low)} tok/s were predicted for one answer at a time"
    why = "see the trace"
    if others is not None and others >= _BUSY_PERCENT:
        why, tip = (
            f"others use {others:.0f} % of the CPU",
            f"{tip}. Other programs compute, too, and take turns with it",
        )
    elif n > 1:
        why = f"{n} answers at once"
    return [Row("Slower than predicted", why, tip, "speed_estimate", tone="warn")]


def others_percent(sample: Sampled | None) -> float | None:
    """How much of all processors other programs use; None where that is not known."""
    if sample is None or sample.cpu_percent is None or sample.window is None or sample.worker is None:
        return None
    own = [process.cpu_percent for process in (sample.window, sample.worker)]
    if None in own:
        return None
    return max(0.0, sample.cpu_percent - sum(one or 0.0 for one in own) / max(1, sample.n_cores))


def _expected(feed: MonitorFeed) -> Row:
    """The range of the plan, beside what was measured."""
    fit = feed.model.fit if feed.model is not None else None
    if fit is None or fit.decode_tps_high <= 0:
        why = _NO_MODEL if feed.model is None else "There was nothing to estimate it by"
        return Row("Decode, predicted", DASH, why, "speed_estimate")
    low, high = figures.rate(fit.decode_tps_low), figures.rate(fit.decode_tps_high)
    basis = "corrected by answers on this computer" if fit.speed_basis == "calibrated" else "an estimate"
    words = f"{low} tok/s" if low == high else f"{low}–{high} tok/s"
    return Row("Decode, predicted", words, f"From the plan of the load: {basis}", "speed_estimate")


def _rate(value: float | None) -> str:
    return DASH if value is None else f"{figures.rate(value)} tok/s"


def first_token_parts(record: GenerationRecord) -> list[tuple[str, float, str, str]]:
    """(name, seconds, what it is, term) of the parts of the time to the first token; they add up to it."""
    t = record.timings
    if t.ttft_s is None:
        return []
    known = t.queue_s + t.template_s + t.prefill_s
    cached = f"{record.usage.cached_tokens:,} tokens came from the KV cache; "
    rest = "copying or restoring them, steps of other chats, and choosing the first token"
    return [
        ("Queue", t.queue_s, "Waiting for the model's process and for a free slot", "queue"),
        ("Template and tokenizer", t.template_s, "Writing the prompt and cutting it into tokens", "chat_template"),
        (
            "Prefill",
            t.prefill_s,
            f"Computing {record.usage.prompt_tokens - record.usage.cached_tokens:,} tokens",
            "prefill",
        ),
        ("Cache and first choice", max(0.0, t.ttft_s - known), cached + rest, "prefix_caching"),
    ]


#: part of a trace -> (name, what it is, term)
_TRACED = {
    "queue": ("Queue", "Waiting for the model's process", "queue"),
    "template": ("Template and tokenizer", "Writing the prompt and cutting it into tokens", "chat_template"),
    "wait": ("Waiting for a slot", "Until a slot was free and what is on disk had been read", "slot"),
    "cache": ("Cache", "Copying or putting back what could be used again", "prefix_caching"),
    "prefill": ("Prefill", "Computing what was new in the prompt", "prefill"),
    "sample": ("First choice", "Choosing the first token", "sampling"),
}


def _first_token_parts(record: GenerationRecord | None, traced: Sequence[tuple[str, float]]) -> list[Row]:
    head = Row("Until the first token", kind="head", tip="Where the time to the first token went, of the last answer")
    if record is None:
        why = "It is known when the answer is over"
        return [head, *(Row(name, DASH, why, term) for name, _, term in _TRACED.values())]
    if traced and record.timings.ttft_s is not None:
        return [head, *(Row(_TRACED[n][0], milliseconds(s), _TRACED[n][1], _TRACED[n][2]) for n, s in traced)]
    parts = first_token_parts(record)
    if not parts:
        return [head, *(Row(name, DASH, "No token was written", term) for name, _, term in _TRACED.values())]
    return [head, *(Row(name, milliseconds(s), tip, term) for name, s, tip, term in parts)]


def _step_rows(feed: MonitorFeed) -> list[Row]:
    found = step_times(list(feed.steps))
    why = "" if found is not None else "Steps are timed while this can be seen; none has been yet"
    head = Row("Decode steps", f"last {found.n:,}" if found is not None else "", why, kind="head")
    values = (found.median, found.p95, found.longest) if found is not None else (None, None, None)
    names = ("Median", "95 of 100 are shorter than", "Longest")
    return [
        head,
        *(Row(name, milliseconds(value), why, "step_time") for name, value in zip(names, values, strict=True)),
    ]


# ---- KV cache


def cache_head(feed: MonitorFeed) -> Row:
    model, kv = feed.model, feed.kv
    if model is None:
        return Row("KV cache", DASH, _NO_MODEL, "kv_cache", kind="head")
    if kv is None or not kv.n_ctx:
        return Row("KV cache", f"{DASH} of {figures.size(model.kv_bytes)}", "Not reported yet", "kv_cache", kind="head")
    used = round(model.kv_bytes * kv.n_used / kv.n_ctx)
    tip = f"{exact(used)} of {exact(model.kv_bytes)} hold something; llama.cpp reserves all of them at the load"
    return Row("KV cache", f"{_mib(used)} of {_mib(model.kv_bytes)} MiB", tip, "kv_cache", kind="head")


def _mib(n_bytes: int) -> str:
    mib = n_bytes / 1024**2
    return f"{mib:,.0f}" if mib >= 10 or not mib else f"{mib:.1f}"


def cache_rows(feed: MonitorFeed, *, full: bool) -> list[Row]:
    model, kv = feed.model, feed.kv
    if model is None:
        return [Row("Tokens", DASH, _NO_MODEL, "context_window")]
    if kv is None:
        return [Row("Tokens", DASH, "The model's process has not reported yet", "context_window")]
    share = f" ({percent(100 * kv.n_used / kv.n_ctx)})" if kv.n_ctx else ""
    rows = [Row("Tokens", f"{kv.n_used:,} of {kv.n_ctx:,}{share}", "Cells in use, of the real context", "kv_cell")]
    if full:
        parts = (("Keys", model.kv_type_k, model.kv_k_bytes), ("Values", model.kv_type_v, model.kv_v_bytes))
        for name, kind, n_bytes in parts:
            words = figures.size(n_bytes) if n_bytes else DASH
            tip = exact(n_bytes) if n_bytes else "llama.cpp did not say it in its log"
            rows.append(Row(f"{name} ({kind})", words, tip, "kv_type"))
        each = model.kv_bytes / kv.n_ctx if kv.n_ctx else 0
        rows.append(Row("One token takes", figures.size(round(each)) if each >= 1024**2 else f"{each / 1024:.1f} KiB"))
        active = sum(1 for s in kv.sequences if s.active)
        rows.append(
            Row("Sequences", f"{len(kv.sequences)} of {model.n_slots}, {active} computing", term="slot"),
        )
    return rows


# ---- memory


def memory_head(feed: MonitorFeed, places: Sequence[Place]) -> Row:
    fit = feed.model.fit if feed.model is not None else None
    if not places:
        why = "Not looked at yet" if feed.sample is None else "The last look at this computer is too old"
        return Row("Memory", DASH, why, "measured_memory", kind="head")
    if fit is None:
        why = _NO_MODEL if feed.model is None else "This load was not planned, so nothing was predicted"
        return Row("Memory", "", why, "measured_memory", kind="head")
    return Row(
        "Memory", "predicted and measured", "What was predicted before the load, beside what it takes", kind="head"
    )


def place_head(place: Place) -> Row:
    term = "ram" if place.name == "RAM" else "vram"
    return Row(place.name, figures.size(place.total_bytes), exact(place.total_bytes), term, kind="row")


def predicted_caption(place: Place) -> Row:
    words = figures.size(place.predicted_bytes)
    return Row("predicted", words, exact(place.predicted_bytes), "fit_plan", kind="note")


def measured_caption(place: Place) -> Row:
    if not place.measured:
        return Row("measured", DASH, place.note, "measured_memory", kind="note")
    if not place.predicted:
        other = dict(place.measured).get("other", 0)
        return Row("in use by all programs", figures.size(other), exact(other), "ram", kind="note")
    words = figures.size(place.measured_bytes)
    if place.error is not None:
        words += f" ({signed(place.error)})" if place.error else " (as predicted)"
    label = "measured" if place.live else "measured at the load"
    tip = f"{exact(place.measured_bytes)}; the model's own buffers, without other programs"
    return Row(label, words, f"{tip}. {place.note}".rstrip(), "measured_memory", kind="note")
