"""Times of the transcript: opening, scrolling, streaming. Prints a table; run it alone on a quiet machine.

    QT_QPA_PLATFORM=offscreen python tests/bench/transcript.py [part of a name]

"gap" is the longest time in which the event loop did not turn, "turn" the most CPU time it spent in one turn (the same
on a machine that does nothing else), "cpu" the GUI thread's CPU time; while streaming the
tokens come at 200 a second; what measuring itself costs is taken off.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "desktop")]

from heartbeat import Heartbeat, run_for, run_until  # noqa: E402
from PySide6.QtCore import Qt, QTimer  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

from desktop import theme  # noqa: E402
from desktop.views.chat.transcript_view import TranscriptView  # noqa: E402
from engine.events import Token  # noqa: E402
from engine.message import GenerationRecord, Message, TextPart, Timings, Usage  # noqa: E402

RECORD = GenerationRecord(finish_reason="stop", usage=Usage(50, 300, 0), timings=Timings(ttft_s=0.2, decode_tps=48.0))
PARAGRAPH = (
    "The container used **more memory** than its `limit`, so the kernel killed it and Kubernetes started it again; see "
    "[the manual](https://example.org/oom) for the details of that. "
)
CODE = (
    "def compute(index: int, values: list[float]) -> float:\n    total = sum(values)  # a comment\n    return total\n\n"
)
ANSWER = (
    f"{PARAGRAPH}\n\n1. First step with *emphasis*\n2. Second step\n   - nested item\n\n```python\n{CODE}```\n\n"
    f"## Next\n\n{PARAGRAPH}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n> quoted text here\n\n"
)


def user(number: int, text: str) -> Message:
    return Message(id=number, chat_id=1, parent_id=None, role="user", parts=(TextPart(text),))


def answer(number: int, text: str, **fields: object) -> Message:
    fields.setdefault("generation", RECORD)
    return Message(id=number, chat_id=1, parent_id=None, role="assistant", parts=(TextPart(text),), **fields)  # type: ignore[arg-type]


def make_view() -> TranscriptView:
    view = TranscriptView(theme=theme.LIGHT)
    view.resize(820, 840)
    view.show()
    run_for(0.1)
    return view


def row(name: str, **figures: str) -> None:
    print(f"{name:44}" + "   ".join(f"{key} {value}" for key, value in figures.items()), flush=True)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def beat_figures(beat: Heartbeat) -> dict[str, str]:
    return {"gap": ms(beat.longest_s), "turn": ms(beat.longest_turn_s), "over_50": str(beat.count_over(0.05))}


def chat(count: int) -> list[Message]:
    made = []
    for number in range(1, count + 1):
        if number % 2:
            made.append(user(number, f"Question {number}: why did my pod restart?"))
        else:
            made.append(answer(number, (ANSWER * 2)[: 200 + number * 37 % 1400]))
    return made


def open_and_scroll(count: int) -> None:
    messages = chat(count)
    view = make_view()
    with Heartbeat() as beat:
        begin = time.perf_counter()
        view.set_messages(messages)
        view.viewport().repaint()
        opened = time.perf_counter() - begin
        run_for(0.5)
    row(f"open {count} messages", first_paint=ms(opened), gap=ms(beat.longest_s), turn=ms(beat.longest_turn_s))
    bar = view.verticalScrollBar()
    with Heartbeat() as beat:
        begin = time.perf_counter()
        for _ in range(150):
            bar.setValue(bar.value() - 120)
            run_for(0.012)
        wall = time.perf_counter() - begin
    row(
        f"scroll up 150 x 120 px in {count}",
        gap=ms(beat.longest_s),
        turn=ms(beat.longest_turn_s),
        over_50=str(beat.count_over(0.05)),
        cpu=f"{beat.cpu_s / wall:.0%} of a core",
        widgets=str(len(view.widgets)),
    )
    with Heartbeat() as beat:
        for step in range(100):
            bar.setValue(round(bar.maximum() * step / 100))
            run_for(0.016)
    row(
        f"drag the scroll bar through {count}",
        gap=ms(beat.longest_s),
        turn=ms(beat.longest_turn_s),
        over_50=str(beat.count_over(0.05)),
    )
    view.close()


def stream(name: str, text: str, tokens: int = 3000, rate: float = 200.0) -> None:
    text = text[: tokens * 4]
    view = make_view()
    view.set_messages([user(1, "Tell me"), answer(2, "", status="streaming", generation=None)])
    view.begin_stream(2)
    run_for(0.2)
    pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
    sent = 0
    begin = time.perf_counter()

    def send() -> None:
        nonlocal sent
        due = min(len(pieces), int((time.perf_counter() - begin) * rate) + 1)
        while sent < due:
            view.append_step(2, Token(index=sent, token_id=1, piece=b"", text=pieces[sent], time_s=0.2 + sent / rate))
            sent += 1

    timer = QTimer()
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.timeout.connect(send)
    with Heartbeat() as beat:
        timer.start(5)
        run_until(lambda: sent >= len(pieces), 120)
        timer.stop()
        view.end_stream(answer(2, text))
        run_for(0.5)
    wall = time.perf_counter() - begin
    cpu = (beat.cpu_s - wall * baseline_s()) / len(pieces) * 1000
    row(
        name,
        gap=ms(beat.longest_s),
        turn=ms(beat.longest_turn_s),
        over_50=str(beat.count_over(0.05)),
        cpu_per_1000=ms(cpu),
        tokens=str(len(pieces)),
    )
    view.close()


@lru_cache
def baseline_s() -> float:
    """CPU seconds a second that measuring itself costs: heartbeat, token timer, no transcript."""
    timer = QTimer()
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: None)
    timer.start(5)
    with Heartbeat() as beat:
        run_until(lambda: False, 2.0)
    timer.stop()
    return beat.cpu_s / 2.0


def idle() -> None:
    view = make_view()
    view.set_messages(chat(10))
    run_for(0.5)
    begin = time.thread_time()
    run_for(3.0)
    row("idle", cpu_per_s=ms((time.thread_time() - begin) / 3), measuring_itself=ms(baseline_s()))
    view.close()


def big(name: str, message: Message, *, all_of_it: bool = False) -> None:
    view = make_view()
    with Heartbeat() as beat:
        begin = time.perf_counter()
        view.set_messages([user(1, "hello"), message])
        view.viewport().repaint()
        opened = time.perf_counter() - begin
        run_for(0.7)
        if all_of_it:
            view.widgets[message.id].show_all()  # type: ignore[attr-defined]
            run_until(lambda: not view.widgets[message.id].body.busy, 60)  # type: ignore[attr-defined]
            run_for(0.3)
    row(
        name,
        first_paint=ms(opened),
        gap=ms(beat.longest_s),
        turn=ms(beat.longest_turn_s),
        over_50=str(beat.count_over(0.05)),
    )
    view.close()


def main() -> None:
    app = QApplication([])
    app.setPalette(theme.palette(theme.LIGHT))
    app.setStyleSheet(theme.stylesheet(theme.LIGHT))
    table = "| name | size | note |\n|---|--:|---|\n" + "".join(
        f"| row {i} | {i * 37} MiB | some `text` for it |\n" for i in range(400)
    )
    line = (PARAGRAPH * 8000)[:1_000_000]
    jobs: list[tuple[str, Callable[[], None]]] = [
        ("open", lambda: open_and_scroll(5000)),
        ("idle", idle),
        ("stream mixed", lambda: stream("stream mixed Markdown", ANSWER * 30)),
        ("stream paragraph", lambda: stream("stream one long paragraph", PARAGRAPH * 100)),
        ("stream plain", lambda: stream("stream plain paragraphs", ("word " * 80 + "\n\n") * 60)),
        ("stream code", lambda: stream("stream one code block", "```python\n" + CODE * 200)),
        ("stream table", lambda: stream("stream one table", table)),
        ("stream list", lambda: stream("stream one list", "- item with some **text** in it\n" * 600)),
        ("big line", lambda: big("1 MB in one line, from the user", user(2, line))),
        ("big answer", lambda: big("1 MB in one line, answer", answer(2, line))),
        ("big all", lambda: big("200 kB in one line, all shown", answer(2, line[:200_000]), all_of_it=True)),
        (
            "big code",
            lambda: big("200 kB code, all shown", answer(2, f"```python\n{CODE * 1800}```"), all_of_it=True),
        ),
        ("big 60k", lambda: big("60 kB Markdown", answer(2, (ANSWER * 200)[:60_000]))),
    ]
    wanted = " ".join(sys.argv[1:])
    for name, job in jobs:
        if wanted in name:
            job()


if __name__ == "__main__":
    main()
