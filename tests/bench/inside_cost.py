"""What looking inside costs: decode speed, gaps of the window, its share of a core, its memory, a hidden window.

    python tests/bench/inside_cost.py [MODEL.gguf] [--tokens 128] [--rounds 7] [--minutes 10] [--only panels,stream]

- panels: the real model writes the same answer with the panels closed, open, open, closed; rates are the worker's own.
  "dock" is the dock beside the chat, "monitor" and "trace" are the full pages in front.
- stream: the scripted worker writes 200 tokens a second for so many minutes, with the dock and then the full page open.
- hidden: the same with the window hidden, and at rest.

What a trace costs is measured by `trace_cost.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
from bench_help import ROOT, Table, arguments, finish

sys.path.insert(0, str(ROOT / "tests" / "desktop"))
import window as window_bench
from heartbeat import Heartbeat, run_for

from desktop import app
from engine import hardware
from engine.sampling import SamplingParams

PROMPT = "Tell me a long story about the sea, and what lives in it."
#: tokens of one scripted answer: fifteen seconds at 200 a second
PER_ANSWER = 3_000
MIB = 1 << 20


def show(window: Any, panel: str) -> None:
    """Bring a panel to the front: "closed", "dock", "monitor" or "trace"."""
    main = window.window
    set_dock(main, shown=panel == "dock")
    if panel in ("monitor", "trace"):
        main.inside.show(panel)
    else:
        main.show_chat()
    set_follows(window, panel == "trace")
    run_for(0.3)


def set_follows(window: Any, follows: bool) -> None:
    """Let the page of the trace show each answer from its first moment on."""
    if not hasattr(window, "followed"):
        window.followed = []

        def begun(event: Any) -> None:
            if window.followed:
                window.window.inside.show_trace(event.message_id)

        window.app.bridge.generation_started.connect(begun)
    window.followed[:] = [True] if follows else []


def set_dock(main: Any, *, shown: bool) -> None:
    if main.inside.monitor.wanted != shown:
        main.show_chat()
        main.chat_view.header.monitor_button.click()
        assert main.inside.monitor.wanted == shown, "there is no room for the dock"


@contextmanager
def opened(command: list[str] | None = None) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        one: Any = window_bench.Window(Path(folder), command)
        one.folder = Path(folder)
        try:
            yield one
        finally:
            one.close()


# ------------------------------------------------------------------ speed of the model


def panels(table: Table, model: str, options: Any) -> None:
    with opened() as one:
        bans = {2: -1e9, 0: -1e9, 1: -1e9, 106: -1e9}
        one.app.engine.change_settings(
            sampling=SamplingParams(temperature=0.0, max_tokens=options.tokens, logit_bias=bans), speculate=False
        )
        one.load(Path(model), n_ctx=2048, n_threads=options.threads)

        window_cpu: dict[str, list[float]] = {}

        def rate(panel: str) -> float:
            one.window.chat_view.presenter.new_chat()
            show(one, panel)
            begun, cpu = time.perf_counter(), time.process_time()
            answer = one.ask(PROMPT)
            share = (time.process_time() - cpu) / (time.perf_counter() - begun)
            window_cpu.setdefault(panel, []).append(share)
            return float(answer.generation.timings.decode_tps)

        rate("dock")
        for panel in [name for name in options.panels.split(",") if name != "closed"]:
            shares = []
            for _ in range(options.rounds):
                closed, first, second, again = rate("closed"), rate(panel), rate(panel), rate("closed")
                shares.append((first + second) / (closed + again))
            middle = statistics.median(shares)
            spread = f"{min(shares):.3f} to {max(shares):.3f}"
            table.row(f"decode, {panel} open / closed ({spread})", f"{middle:.3f}", ">= 0.95", middle >= 0.95)
        for panel, shares in window_cpu.items():
            table.row(f"  processor time of the window, {panel}, share of a core", f"{statistics.median(shares):.1%}")


# ------------------------------------------------------------------ the window


class Beat(Heartbeat):
    """Also notes how much of each gap the thread waited for a processor, where the system tells (Linux): on a computer
    that others use too, that is their share."""

    def __enter__(self) -> Heartbeat:
        self.waits_s: list[float] = []
        self._file = None
        with contextlib.suppress(OSError):
            self._file = open(f"/proc/self/task/{threading.get_native_id()}/schedstat", "rb", buffering=0)
        self._waited = self._wait_s()
        return super().__enter__()

    def __exit__(self, *what: object) -> None:
        super().__exit__(*what)
        if self._file is not None:
            self._file.close()

    def _wait_s(self) -> float:
        if self._file is None:
            return 0.0
        self._file.seek(0)
        return int(self._file.read().split()[1]) / 1e9

    def _tick(self) -> None:
        super()._tick()
        waited = self._wait_s()
        self.waits_s.append(waited - self._waited)
        self._waited = waited

    @property
    def own_s(self) -> list[float]:
        """The gaps without the time in which the thread could have run but had no processor."""
        return [max(0.0, gap - wait) for gap, wait in zip(self.gaps_s, self.waits_s, strict=True)]


class Watch:
    """The event loop, the GUI thread's time and the window's memory over many answers."""

    def __init__(self) -> None:
        self.longest_s = self.own_s = self.turn_s = self.cpu_s = self.wall_s = 0.0
        self.n_tokens = self.n_late = self.n_own_late = 0
        self.private: list[int] = []

    def during(self, work: Callable[[], int]) -> None:
        begun = time.perf_counter()
        beat = Beat()
        with beat:
            self.n_tokens += work()
        self.wall_s += time.perf_counter() - begun
        self.cpu_s += beat.cpu_s
        self.longest_s = max(self.longest_s, beat.longest_s)
        self.turn_s = max(self.turn_s, beat.longest_turn_s)
        self.own_s = max(self.own_s, *beat.own_s)
        self.n_late += beat.count_over(0.05)
        self.n_own_late += sum(own > 0.05 for own in beat.own_s)
        self.private.append(hardware.process_memory(os.getpid())[1])

    def grown_bytes(self) -> int:
        """How much more it has in the last quarter than in the second one; the first is for warming up."""
        quarter = len(self.private) // 4
        if not quarter:
            return 0
        early, late = self.private[quarter : 2 * quarter], self.private[-quarter:]
        return int(statistics.median(late) - statistics.median(early))


def _scripted() -> list[str]:
    from engine.worker.fake_script import long_answer

    script = {"answers": [{"tokens": list(long_answer(PER_ANSWER)), "delay_s": 0.005, "prefill_s": 0.1}]}
    file = Path(tempfile.mkstemp(suffix=".json")[1])
    file.write_text(json.dumps(script), encoding="utf-8")
    return [sys.executable, "-m", "engine.worker.fake", "--script", str(file)]


@contextmanager
def scripted() -> Iterator[Any]:
    command = _scripted()
    try:
        with opened(command) as one:
            model = one.folder / "fake.gguf"
            model.write_bytes(b"GGUF")
            one.load(model)
            yield one
    finally:
        Path(command[-1]).unlink()


def _answer(one: Any) -> int:
    one.window.chat_view.presenter.new_chat()
    answer = one.ask("Tell me everything.")
    return int(answer.generation.usage.completion_tokens)


def stream(table: Table, options: Any) -> None:
    for panel in options.panels.split(","):
        with scripted() as one:
            watch = Watch()
            show(one, panel)
            _answer(one)  # fonts, plots and caches of everything that is shown for the first time
            seconds = options.minutes * 60 if panel != "closed" else min(60.0, options.minutes * 60)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                watch.during(lambda one=one: _answer(one))  # type: ignore[misc]
            rate = watch.n_tokens / watch.wall_s
            minutes = watch.wall_s / 60
            share = watch.cpu_s / watch.wall_s
            head = f"{panel}, {watch.n_tokens:,} tokens at {rate:.0f}/s in {minutes:.1f} min"
            gap = watch.own_s * 1000
            table.row(f"{head}: longest gap, ms", f"{gap:.0f}", "< 50", gap < 50)
            table.row("  gaps over 50 ms", f"{watch.n_own_late}", "0", watch.n_own_late == 0)
            late = f"{watch.longest_s * 1000:.0f} ({watch.n_late})"
            table.row("  the same with the time others had the processor", late)
            table.row("  longest turn of the GUI thread in CPU time, ms", f"{watch.turn_s * 1000:.0f}")
            table.row("  GUI thread, share of a core", f"{share:.1%}", "< 30 %", share < 0.3)
            grown = watch.grown_bytes() / MIB
            table.row(
                f"  private memory, {watch.private[-1] / MIB:.0f} MiB: growth", f"{grown:+.1f} MiB", "< 8", grown < 8
            )


def hidden(table: Table) -> None:
    with scripted() as one:
        show(one, "dock")
        _answer(one)
        shown = Watch()
        shown.during(lambda: _answer(one))
        one.window.hide()
        run_for(0.5)
        watch = Watch()
        watch.during(lambda: _answer(one))
        table.row(
            f"hidden while writing: GUI thread, share of a core (shown: {shown.cpu_s / shown.wall_s:.1%})",
            f"{watch.cpu_s / watch.wall_s:.1%}",
        )
        names = [thread.name for thread in threading.enumerate()]
        table.row(
            "threads that look at the computer while hidden", f"{names.count('metrics')}", "0", "metrics" not in names
        )
        # without the heartbeat, which takes a share of its own
        run_for(1.0)
        begun, cpu = time.perf_counter(), time.process_time()
        run_for(10.0)
        share = (time.process_time() - cpu) / (time.perf_counter() - begun)
        table.row("hidden at rest: whole process, share of a core", f"{share:.2%}", "< 1 %", share < 0.01)


def main() -> None:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="panels,stream,hidden")
    parser.add_argument("--panels", default="closed,dock,monitor,trace", help="of the stream, and of the ratios")
    options = parser.parse_args()
    only = options.only.split(",")
    vars(window_bench)["QT"] = app.make_qt_app(["bench"])
    tables = []
    for model in options.models if "panels" in only else ():
        tables.append(Table(f"panels open and closed, {Path(model).name}"))
        panels(tables[-1], model, options)
    if "stream" in only or "hidden" in only:
        tables.append(Table("the window, 200 tokens a second from the scripted worker"))
        if "stream" in only:
            stream(tables[-1], options)
        if "hidden" in only:
            hidden(tables[-1])
    finish(*tables)


if __name__ == "__main__":
    main()
