"""`inglenook bench`: how fast a model reads and writes on this computer."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from engine import paths as places
from engine.bench import Benchmark, BenchSample, BenchSpec, Progress
from engine.bench_history import BenchHistory, BenchResult, BenchRow, Spread, history_file, table_words
from engine.cli_arguments import clean_text
from engine.cli_output import for_terminal, json_line
from engine.errors import EngineError, InvalidRequest
from engine.models import starter
from engine.settings import Settings

_STAGES = {"model": "in the model process", "chat": "through chats"}
_FIELDS = {"n_prompt": "pp", "n_generate": "tg", "n_runs": "runs"}
_POLL_S = 0.25


def run(options: argparse.Namespace) -> int:
    """The exit status.

    Raises:
        EngineError: what went wrong; the caller prints it.
        KeyboardInterrupt: the measurement has been ended by then.
    """
    output = _Lines() if options.json else _Words()
    bench = Benchmark(_spec(options), progress=output.progress)
    result = _wait(bench)
    output.clear()
    history = BenchHistory(history_file(places.resolve().data))
    try:
        history.add(result)
    except EngineError as error:  # the figures are there all the same
        sys.stderr.write(f"inglenook: the result is not kept: {for_terminal(error.message)}\n")
    output.result(result)
    return 0


def _spec(options: argparse.Namespace) -> BenchSpec:
    settings_file = places.resolve().settings_file
    recent = Settings(settings_file).recent_models if places.is_file(settings_file) else ()
    path = str(starter.resolve_model(options.model, places.resolve(), recent).absolute())
    if path != clean_text(path):
        raise InvalidRequest("The name of the model file is no valid UTF-8", details={"field": "model"})
    load: dict[str, int] = {}
    for name, low, fields in (
        ("threads", 1, ("n_threads", "n_threads_batch")),
        ("gpu_layers", -1, ("n_gpu_layers",)),
    ):
        value = getattr(options, name)
        if value is None:
            continue
        if not low <= value < 2**31:
            option = name.replace("_", "-")
            raise InvalidRequest(f"--{option} must be at least {low}, not {value}", details={"field": name})
        load |= dict.fromkeys(fields, value)
    try:
        return BenchSpec(
            path=path,
            n_prompt=options.pp,
            n_generate=options.tg,
            parallel=options.parallel,
            n_runs=options.runs,
            load=load,
        ).checked()
    except InvalidRequest as error:
        field = str(error.details.get("field", ""))
        option = _FIELDS.get(field, field)
        message = error.message.replace(field, f"--{option}", 1)
        raise InvalidRequest(message, hint=error.hint, details={"field": option}) from None


def _wait(bench: Benchmark) -> BenchResult:
    """Measure on a thread of its own, so that Ctrl+C finds one that it can interrupt."""
    found: list[BenchResult | BaseException] = []

    def work() -> None:
        try:
            found.append(bench.run())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work, name="bench")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
    except KeyboardInterrupt:
        bench.stop()
        thread.join()
        raise
    (end,) = found
    if isinstance(end, BaseException):
        raise end
    return end


class _Words:
    """Progress on standard error where that is a terminal; the table on standard output."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()

    def progress(self, now: Progress) -> None:
        if not self._shows:
            return
        if now.stage == "load":
            words = f"Loading the model {now.fraction:.0%}"
        else:
            words = f"{now.fraction:4.0%}  {now.parallel} at once, run {now.run}, {_STAGES[now.stage]}"
        sys.stderr.write(f"\r\x1b[K{words}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def result(self, result: BenchResult) -> None:
        sys.stdout.write(for_terminal(table_words(result)) + "\n")


class _Lines:
    """One JSON object for each run of a row, the whole last."""

    def progress(self, now: Progress) -> None:
        if now.sample is not None:
            sys.stdout.write(json_line({"type": "bench_run", **_sample(now.sample)}) + "\n")
            sys.stdout.flush()

    def clear(self) -> None:
        """Nothing is shown meanwhile."""

    def result(self, result: BenchResult) -> None:
        details = {"type": "bench_details", **_details(result)}
        sys.stdout.write(json_line(details) + "\n")
        rows = [_row(row) for row in result.rows]
        summary = {"llama_cpp": result.llama_cpp, "threads": result.n_threads, "rows": rows}
        sys.stdout.write(json_line(summary) + "\n")
        sys.stdout.flush()


def _sample(sample: BenchSample) -> dict[str, object]:
    return {
        "parallel": sample.parallel,
        "run": sample.run,
        "prefill_tps": round(sample.prefill_tps, 2),
        "decode_tps": round(sample.decode_tps, 2),
        "session_decode_tps": _rounded(sample.session_decode_tps),
    }


def _row(row: BenchRow) -> dict[str, object]:
    return {
        "parallel": row.parallel,
        "prefill_tps": round(row.prefill.median, 2),
        "decode_tps": round(row.decode.median, 2),
        "session_decode_tps": _rounded(row.session.median if row.session else None),
    }


def _details(result: BenchResult) -> dict[str, object]:
    """What was measured, and between which figures the medians lie."""

    def limits(found: Spread | None) -> list[float] | None:
        return [round(found.low, 2), round(found.high, 2)] if found else None

    return {
        "model": result.model,
        "file": Path(result.path).name,
        "quantization": result.quantization,
        "pp": result.n_prompt,
        "tg": result.n_generate,
        "runs": result.n_runs,
        "gpu_layers": result.n_gpu_layers,
        "flash_attention": result.flash_attention,
        "spread": [
            {
                "parallel": row.parallel,
                "prefill_tps": limits(row.prefill),
                "decode_tps": limits(row.decode),
                "session_decode_tps": limits(row.session),
            }
            for row in result.rows
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
