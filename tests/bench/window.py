"""The window measured as a whole: start, a long chat, a streamed answer, decode speed beside a bare llama.cpp loop.

    python tests/bench/window.py MODEL.gguf [--tokens 200] [--rounds 5] [--only start,chat,stream,decode]

Prints a table. Nothing is asserted: machines differ, and this is for people to read. The stream of 3,000 tokens at 200
a second comes from the scripted worker; everything else is the real one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS.parent), str(TESTS / "worker"), str(TESTS / "desktop")]
os.environ["PYTHONPATH"] = str(TESTS.parent)

PROMPT = "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled."


def row(name: str, value: str, wanted: str) -> None:
    print(f"{name:58}{value:>18}   {wanted}")


def start_times(rounds: int) -> None:
    """Seconds from the start of the process to a painted window that takes input, as the program itself logs it."""
    walls = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            begun = time.time()
            env = {**os.environ, "INGLENOOK_HOME": home}
            subprocess.run(
                [sys.executable, "-m", "desktop", "--self-test-window"], env=env, check=True, cwd=TESTS.parent
            )
            log = "".join(p.read_text() for p in Path(home).rglob("*.log"))
            found = [line for line in log.splitlines() if "window usable after" in line]
            walls.append(float(found[-1].split("usable after ")[1].split(" s")[0]) if found else time.time() - begun)
    row("start to usable window, s (median)", f"{statistics.median(walls):.2f}", "< 1.5")


class Window:
    """The real application in this process."""

    def __init__(self, home: Path, command: list[str] | None = None) -> None:
        from desktop import app
        from engine.paths import resolve

        self.app = app.Application(
            QT, resolve(home).ensure(), app.Options(theme="light", load_model=False), worker_command=command
        )
        self.window = self.app.window
        self.window.resize(1200, 800)
        self.app.start()
        self.until(lambda: self.window._painted)

    def until(self, done: Any, timeout_s: float = 120, *, every_ms: int = 10) -> None:
        from heartbeat import run_until

        if not run_until(done, timeout_s, every_ms):
            raise SystemExit("timed out")

    def load(self, path: Path, **options: Any) -> None:
        self.app.engine.load_model(path, **options)
        self.until(lambda: self.window.control.state.status == "ready")

    def ask(self, text: str) -> Any:
        presenter = self.window.chat_view.presenter
        before = len(presenter.messages)
        self.window.chat_view.composer.edit.setPlainText(text)
        self.window.chat_view.composer.submit()
        # looking often would wake this process more often than the program itself does
        self.until(lambda: len(presenter.messages) >= before + 2 and not presenter.generating, every_ms=250)
        return presenter.messages[-1]

    def close(self) -> None:
        self.app.close()
        self.until(lambda: self.app.ended)
        self.window.deleteLater()


def long_chat() -> None:
    from heartbeat import Heartbeat, run_for

    from engine.message import TextPart
    from engine.paths import resolve
    from engine.store.chats import ChatStore

    text = "Some **bold** prose with `code` and more words to fill a line.\n\n- one\n- two\n\n```python\nx = 1\n```\n"
    with tempfile.TemporaryDirectory() as folder:
        paths = resolve(Path(folder)).ensure()
        store = ChatStore(paths.database)
        chat = store.create_chat("five thousand messages")
        parent = None
        for n in range(5000):
            part = (TextPart(f"{n}: {text}"),)
            parent = store.add_message(chat.id, parent, "assistant" if n % 2 else "user", part).id
        store.close()
        window = Window(Path(folder))
        view = window.window.chat_view
        run_for(1.0)
        begun = time.perf_counter()
        with Heartbeat() as beat:
            view.presenter.open_chat(chat.id)
            window.until(lambda: len(view.presenter.messages) == 5000)
            QT.processEvents()
            opened = time.perf_counter() - begun
            run_for(0.5)
        row("chat of 5,000 messages on screen, ms", f"{opened * 1000:.0f}", "< 300")
        row("  longest gap of the event loop while it opens, ms", f"{beat.longest_s * 1000:.0f}", "")
        from PySide6.QtWidgets import QAbstractScrollArea

        bar = max(
            (area.verticalScrollBar() for area in view.transcript.findChildren(QAbstractScrollArea)),
            key=lambda one: one.maximum(),
        )
        with Heartbeat() as beat:
            for step in range(200):
                bar.setValue(bar.maximum() - step * 120)
                run_for(0.01)
        row("  longest gap while scrolling 200 steps, ms", f"{beat.longest_s * 1000:.0f}", "< 50")
        window.close()


def stream() -> None:
    from heartbeat import Heartbeat

    script = "long"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "fake.gguf"
        model.write_bytes(b"GGUF")
        window = Window(Path(folder), [sys.executable, "-m", "engine.worker.fake", "--script", script])
        window.load(model)
        begun = time.perf_counter()
        with Heartbeat() as beat:
            answer = window.ask("Tell me everything.")
        seconds = time.perf_counter() - begun
        n = answer.generation.usage.completion_tokens
        row(f"streaming {n:,} tokens at {n / seconds:.0f}/s: longest gap, ms", f"{beat.longest_s * 1000:.0f}", "< 50")
        row("  longest turn of the GUI thread in CPU time, ms", f"{beat.longest_turn_s * 1000:.0f}", "")
        row("  CPU of the GUI thread per 1,000 tokens, s", f"{beat.cpu_s / n * 1000:.2f}", "")
        window.close()


def decode(model: Path, tokens: int, rounds: int) -> None:
    """The same greedy answer in the window and in a bare loop, in turns."""
    from bare_loop import run as bare_run
    from raw_worker import RawWorker

    from engine.sampling import SamplingParams

    with RawWorker() as worker:
        worker.load(str(model), n_ctx=2048)
        prompt = worker.tokens_of(messages=[{"role": "user", "content": PROMPT}])
    with tempfile.TemporaryDirectory() as folder:
        window = Window(Path(folder))
        window.app.engine.change_settings(
            sampling=SamplingParams(temperature=0.0, max_tokens=tokens, logit_bias={2: -1e9, 0: -1e9})
        )
        window.load(model, n_ctx=2048)
        bare, ours = [], []
        for _ in range(rounds):
            result = bare_run(model, [{"tokens": prompt, "n": tokens}])[0]
            bare.append((len(result["tokens"]) - 1) / result["decode_s"])
            window.window.chat_view.presenter.new_chat()
            ours.append(window.ask(PROMPT).generation.timings.decode_tps)
        window.close()
    ratios = sorted(a / b for a, b in zip(ours, bare, strict=True))
    row("decode in the window, tokens/s (median)", f"{statistics.median(ours):.1f}", "")
    row("decode in a bare llama.cpp loop, tokens/s (median)", f"{statistics.median(bare):.1f}", "")
    low, high = ratios[0], ratios[-1]
    row(
        "  ratio, median of pairs (lowest, highest)",
        f"{statistics.median(ratios):.3f}",
        f">= 0.90  ({low:.2f}, {high:.2f})",
    )


def main() -> None:
    global QT
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="start,chat,stream,decode")
    options = parser.parse_args()
    only = options.only.split(",")
    from desktop import app

    QT = app.make_qt_app(["bench"])
    print(json.dumps({"cpus": os.cpu_count(), "load": os.getloadavg()[0], "platform": QT.platformName()}))
    if "start" in only:
        start_times(options.rounds)
    if "chat" in only:
        long_chat()
    if "stream" in only:
        stream()
    if "decode" in only:
        decode(options.model, options.tokens, options.rounds)


if __name__ == "__main__":
    main()
