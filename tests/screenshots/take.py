"""Pictures of the real window: every scene in light and dark, at 100 % and 200 %.

    python tests/screenshots/take.py OUT [--scene chat] [--theme light] [--scale 1]

The chat scene is the real thing: the starter model answers the question of the README. The others use the scripted
worker, to show states that are hard to come by. Look at them; they are not compared with anything.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "desktop")]
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["PYTHONPATH"] = str(ROOT)

QUESTION = "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled."
RICH = """The container used more memory than its **limit**, so the kernel killed it and Kubernetes started it again. \
`OOMKilled` alone does not prove a leak.

Check the limit and the real usage first:

```bash
# limits, and why it died
kubectl describe pod $POD | grep -A3 "Limits\\|Last State"
kubectl top pod $POD --containers
```

| sign | what it means |
|---|---|
| usage climbs steadily | a leak, or a cache without a bound |
| usage jumps at once | a large request, a big file |

1. Raise the limit only when the peak is **expected**.
2. Otherwise look for what grows; see [the manual](https://example.org/oom)."""


class Scene:
    """A running window for one picture."""

    def __init__(self, qt: Any, home: Path, theme: str, script: dict[str, Any] | str | None) -> None:
        from desktop import app
        from engine.paths import resolve

        given = script if isinstance(script, str) else json.dumps(script or {})
        command = None if script is None else [sys.executable, "-m", "engine.worker.fake", "--script", given]
        options = app.Options(theme=theme, load_model=False)
        self.app = app.Application(qt, resolve(home).ensure(), options, worker_command=command)
        self.window = self.app.window
        self.window.resize(1280, 840)
        self.app.start()
        self.view = self.window.chat_view
        self.over: list[Any] = []  # popups, which are windows of their own
        self.until(lambda: self.window._painted)
        self.pause(0.5)

    def until(self, done: Callable[[], bool], timeout_s: float = 120) -> None:
        from heartbeat import run_until

        assert run_until(done, timeout_s), "timed out"

    def pause(self, seconds: float) -> None:
        from heartbeat import run_for

        run_for(seconds)

    def load(self, model: str | Path, **options: Any) -> None:
        self.app.engine.load_model(model, **options)
        self.until(lambda: self.window.control.state.status == "ready")

    def ask(self, text: str, wait: bool = True) -> None:
        presenter = self.view.presenter
        before = len(presenter.messages)
        self.view.composer.edit.setPlainText(text)
        self.view.composer.submit()
        if wait:
            self.until(lambda: len(presenter.messages) >= before + 2 and not presenter.generating)
        self.pause(0.6)

    def close(self) -> None:
        self.app.close()
        self.until(lambda: self.app.ended)
        self.window.deleteLater()


def pretend_model(home: Path, name: str = "Qwen3 8B.Q5_K_M.gguf") -> Path:
    path = home / name
    path.write_bytes(b"GGUF")
    return path


def chat(scene: Scene, home: Path) -> None:
    from engine.sampling import SamplingParams

    scene.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=220))
    scene.load("starter")
    scene.ask(QUESTION)


def rich(scene: Scene, home: Path) -> None:
    scene.load(pretend_model(home))
    scene.ask(QUESTION)


def first(scene: Scene, home: Path) -> None:
    scene.load("starter")
    scene.pause(1.0)


def no_model(scene: Scene, home: Path) -> None:
    scene.pause(0.3)


def died(scene: Scene, home: Path) -> None:
    scene.load(pretend_model(home))
    scene.ask(QUESTION)
    scene.pause(0.5)


def died_safer(scene: Scene, home: Path, *, small: bool = False) -> None:
    """The real model's process dies while it writes; what a load with less would give up is known."""
    from PySide6.QtWidgets import QPushButton

    os.environ |= {"INGLENOOK_TEST_HOOKS": "1", "INGLENOOK_TEST_CRASH": "stream:kill:40"}
    if small:
        scene.app.engine.change_settings(text_scale=1.5)
        scene.window.resize(720, 480)
    scene.load("starter")
    scene.ask(QUESTION)
    banner = scene.view.banner
    scene.until(lambda: banner.findChild(QPushButton, "reload_safer") is not None)
    if not small:
        banner.findChild(QPushButton, "banner_fold").click()
    scene.pause(0.5)


def settings(scene: Scene, home: Path) -> None:
    scene.load("starter")
    scene.window.actions_["view_settings"].trigger()
    scene.pause(0.5)


POD = {
    "type": "object",
    "properties": {
        "cause": {"type": "string", "maxLength": 60},
        "severity": {"enum": ["low", "medium", "high"]},
        "restarts": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["cause", "severity", "restarts"],
    "additionalProperties": False,
}


def answer_format(scene: Scene, home: Path, *, text: str = "", says: str = "can be enforced") -> None:
    from desktop.views.settings.chat_settings import ChatSettingsDialog

    scene.window.actions_["chat_settings"].trigger()
    dialog = scene.window.findChild(ChatSettingsDialog)
    section = dialog.format
    section.kind.setCurrentIndex(section.kind.findData("schema"))
    section.text.setPlainText(text or json.dumps(POD, indent=2))
    scene.until(lambda: says in section.words.text())
    dialog.move(scene.window.pos().x() + 380, scene.window.pos().y() + 100)
    scene.over.append(dialog)
    scene.pause(0.3)


def answer_format_wrong(scene: Scene, home: Path) -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    answer_format(scene, home, text=json.dumps(schema, indent=2), says="uniqueItems")


def answer_json(scene: Scene, home: Path) -> None:
    from engine.message import AnswerFormat, ChatSettings
    from engine.sampling import SamplingParams

    scene.load("starter")
    sampling = SamplingParams(temperature=0, max_tokens=120)
    form = AnswerFormat("schema", json.dumps(POD))
    scene.view.presenter.set_settings(ChatSettings(sampling=sampling, answer_format=form))
    scene.until(lambda: scene.view.presenter.chat is not None)
    scene.ask(QUESTION)


def engine_page(scene: Scene, home: Path) -> None:
    from desktop.views.settings.settings_view import ENGINE
    from engine.engine_options import EngineOptions

    scene.load("starter")
    scene.window.actions_["view_settings"].trigger()
    scene.app.engine.change_settings(engine=EngineOptions(n_threads=1, kv_type_k="q8_0"))
    view = scene.window.settings_view
    view.show_tab(ENGINE)
    scene.until(lambda: "(" in view.engine_page.row("n_threads_batch").automatic.text())
    scene.pause(0.5)


def engine_page_end(scene: Scene, home: Path) -> None:
    from desktop.views.settings.settings_view import ENGINE

    scene.window.actions_["view_settings"].trigger()
    view = scene.window.settings_view
    view.show_tab(ENGINE)
    choice = view.engine_page.row("flash_attention").control
    choice.setCurrentIndex(choice.findData("off"))
    choice = view.engine_page.row("kv_type_v").control
    choice.setCurrentIndex(choice.findData("q8_0"))  # refused in words
    scene.pause(0.5)
    bar = view._scroll.verticalScrollBar()
    bar.setValue(bar.maximum())
    scene.pause(0.5)


def advanced(scene: Scene, home: Path, *, down: bool = False) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "engine"))
    from tiny_models import lora

    from engine.models import starter

    folder = scene.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    own = starter.find()
    assert own is not None
    lora(folder / "pirate-lora.gguf", own, rank=8, size=0.01, name="Talks like a pirate")
    lora(folder / "short-lora.gguf", own, rank=16, size=0.01, name="Answers in one sentence")
    view = on_a_laptop(scene)
    view.show_load(str(own))
    panel = view.library_page.load_panel
    scene.until(lambda: len(panel.adapters.rows) == 2 and panel.panel.plan is not None)
    panel.adapters.rows[0].box.click()
    panel.adapters.rows[0].slider.slider.setValue(14)
    panel.advanced.fold.click()
    choice = panel.advanced.form.rows["kv_type_k"].control
    choice.setCurrentIndex(choice.findData("q8_0"))
    scene.pause(1.5)
    if down:
        bar = view.library_page.verticalScrollBar()
        bar.setValue(bar.maximum())
        scene.pause(0.5)


def advanced_end(scene: Scene, home: Path) -> None:
    advanced(scene, home, down=True)


def on_a_laptop(scene: Scene) -> Any:
    """The models' view as it is on a laptop with a GPU of 8 GiB, whatever this machine has."""
    from models_help import LAPTOP

    from desktop.fit_sources import EngineFitter

    EngineFitter.machine = lambda self: LAPTOP  # type: ignore[method-assign]
    view = scene.window.show_models()
    scene.until(lambda: view.discover._judged)
    return view


def models(scene: Scene, home: Path) -> None:
    view = on_a_laptop(scene)
    view.discover.list.mark("catalog:qwen3-8b")
    view.discover.list.chosen.emit("catalog:qwen3-8b")
    scene.until(lambda: "own count" in view.model_page.fit_panel.what_if.source.text())
    scene.pause(0.5)


def models_offline(scene: Scene, home: Path) -> None:
    os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
    view = on_a_laptop(scene)
    view.discover.ask_hub()
    scene.until(lambda: not view.discover.state.isHidden() and not view.discover.state.busy.isVisible())
    scene.pause(0.3)


def library(scene: Scene, home: Path) -> None:
    from engine.models import starter

    folder = scene.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    own = starter.find()
    assert own is not None
    (folder / "SmolLM2-360M-Q4_1.gguf").write_bytes(own.read_bytes()[:3_000_000])
    view = on_a_laptop(scene)
    scene.load("starter")
    view.show_load(str(own))
    scene.until(lambda: view.library_page.load_panel.measured.isVisible())
    scene.until(lambda: "own count" in view.library_page.load_panel.panel.what_if.source.text())
    scene.pause(0.5)


def damaged(scene: Scene, home: Path) -> None:
    folder = scene.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Qwen3-8B-Q5_K_M.gguf").write_bytes(b"GGUF" + bytes(200))
    view = on_a_laptop(scene)
    view.show_load(str(folder / "Qwen3-8B-Q5_K_M.gguf"))
    scene.pause(1.0)


def downloads(scene: Scene, home: Path) -> None:
    from engine.events import DownloadChanged, DownloadInfo
    from engine.message import ErrorInfo

    gib = 1024**3
    silent = ErrorInfo("hub_unreachable", "huggingface.co sends nothing", "It goes on by itself when bytes come.")
    full = ErrorInfo("disk_full", "12.0 GiB do not fit: 3.1 GiB are free", "Free some space, then try again.")
    view = on_a_laptop(scene)
    scene.pause(0.5)
    for info in (
        DownloadInfo("5", "ggml-org/SmolLM3-3B-GGUF", "Q4_K_M", "done", 2 * gib, 2 * gib, paths=("x",)),
        DownloadInfo("4", "ggml-org/gpt-oss-20b-GGUF", "MXFP4", "failed", 0, 12 * gib, error=full),
        DownloadInfo("3", "google/gemma-3-12b-it-GGUF", "Q4_K_M", "stalled", gib, 7 * gib, error=silent),
        DownloadInfo("2", "Qwen/Qwen3-4B-GGUF", "Q8_0", "queued", 0, 4 * gib),
        DownloadInfo("1", "Qwen/Qwen3-8B-GGUF", "Q5_K_M", "running", 2 * gib, 5 * gib, 14.2 * 1024**2, 245.0),
    ):
        scene.app.engine._emit(DownloadChanged(download=info))
    view.show_tab(2)
    scene.pause(0.8)


def first_run(scene: Scene, home: Path) -> None:
    from models_help import LAPTOP

    from desktop.fit_sources import EngineFitter

    EngineFitter.machine = lambda self: LAPTOP  # type: ignore[method-assign]
    scene.window.models.offer_first_run()
    scene.until(lambda: scene.window.models.first_run is not None)
    scene.until(lambda: scene.window.models.first_run.verdict.text() != "")
    scene.pause(0.5)


def fill(view: Any, parallel: str) -> None:
    sizes = {"n_prompt": "32", "n_generate": "24", "parallel": parallel, "n_runs": "2", "n_threads": "1"}
    for name, text in sizes.items():
        view.form.fields[name].setText(text)


def bench(scene: Scene, home: Path) -> None:
    """Three measurements for real, in small sizes: the last is shown, the others stand in the history."""
    view = scene.window.bench.show()
    scene.until(lambda: view.form.model.count() > 0)
    for parallel in ("1, 2", "1, 2, 4", "1, 2, 4"):
        fill(view, parallel)
        before = len(view.kept.results)
        view.form.run.click()
        scene.until(lambda before=before: len(view.kept.results) > before)
    scene.until(lambda: view.result.chart.plot is not None)
    scene.pause(0.5)


def bench_runs(scene: Scene, home: Path) -> None:
    view = scene.window.bench.show()
    scene.until(lambda: view.form.model.count() > 0)
    fill(view, "1, 2, 4")
    view.form.run.click()
    scene.until(lambda: view.result.table.table.rowCount() > 1)
    scene.pause(0.2)


def context(scene: Scene, home: Path, n_ctx: int = 768) -> None:
    from PySide6.QtCore import QPoint

    from engine.sampling import SamplingParams

    scene.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=90))
    scene.app.engine.change_settings(system_prompt="Answer in two or three short sentences.")
    scene.load("starter", n_ctx=n_ctx)
    for question in (
        "What is a pod in Kubernetes?",
        "Why would a container be killed for memory?",
        QUESTION,
        "How do I see the limits of a container?",
        "What is the difference between requests and limits?",
        "Can a limit be raised while the pod runs?",
    ):
        scene.ask(question)
    scene.app.engine.chats.pin(scene.view.presenter.messages[2].id, True)
    scene.view.composer.edit.setPlainText("And how do I find out whether it leaks memory? " * 5)
    desk = scene.view.context
    scene.until(lambda: desk.ledger is not None and "pinned" in {span.kind for span in desk.ledger.spans})
    scene.until(lambda: "draft" in {segment.kind for segment in scene.view.strip.meter.segments})
    desk.open()
    # the screen of the offscreen platform is smaller than the window
    meter = scene.view.strip.meter
    desk.popup.move(meter.mapToGlobal(meter.rect().topLeft()) - QPoint(0, desk.popup.height() + 6))
    scene.over.append(desk.popup)
    scene.pause(0.5)


def context_fits(scene: Scene, home: Path) -> None:
    context(scene, home, 4096)


def trace_page(scene: Scene, place: int = 0) -> Any:
    """A real answer to a second question, its trace, and one of its tokens chosen."""
    from engine.sampling import SamplingParams

    sampling = SamplingParams(temperature=0.7, repeat_penalty=1.05, max_tokens=90, seed=2864434397)
    scene.app.engine.change_settings(sampling=sampling, system_prompt="You are a terse assistant.")
    scene.load("starter")
    scene.ask("What is a pod in Kubernetes?")
    scene.ask(QUESTION)
    scene.window.inside.show_trace(scene.view.presenter.messages[-1].id)
    page = scene.window.inside.view.page("trace")
    scene.until(lambda: page.desk.trace is not None and page.desk.trace.marks is not None)
    scene.pause(0.5)
    if place:
        page.sections.written._choose(place)
    scene.pause(0.5)
    return page


def trace(scene: Scene, home: Path) -> None:
    trace_page(scene, 12)


def trace_prompt(scene: Scene, home: Path) -> None:
    """A long prompt, folded; one of its tokens chosen, and below it an answer that went on from another token."""
    trace_page(scene)
    scene.window.show_chat()
    scene.ask(f"{RICH}\n" * 5 + "What would you look at first? Answer in one sentence.")
    scene.window.inside.show_trace(scene.view.presenter.messages[-1].id)
    page = scene.window.inside.view.page("trace")
    before = page.desk.message_id
    scene.until(lambda: page.desk.trace is not None and page.desk.trace.marks is not None)
    page.sections.written._choose(6)
    next(row for row in page.panel.alternatives.rows if not row.chosen).click()
    scene.until(lambda: page.desk.message_id != before)
    scene.until(lambda: page.desk.trace is not None and page.desk.trace.marks is not None)
    scene.until(lambda: page.sections.chips.count() > 0)
    token = len(page.sections.chips.text) - 12
    page.sections.chips.choose_token(token)
    page.sections.chips.token_chosen.emit(token)
    scene.pause(0.5)


def trace_small(scene: Scene, home: Path) -> None:
    scene.window.resize(720, 480)
    scene.app.engine.change_settings(text_scale=1.5)
    trace_page(scene, 5)


def trace_live(scene: Scene, home: Path) -> None:
    from engine.sampling import SamplingParams

    scene.app.engine.change_settings(sampling=SamplingParams(temperature=0.7, max_tokens=2000, seed=7))
    scene.load("starter")
    scene.ask("Tell a long story about a lighthouse.", wait=False)
    scene.until(lambda: bool(scene.app.engine.chats.generating()))
    scene.window.inside.show_trace(next(iter(scene.app.engine.chats.generating().values())))
    page = scene.window.inside.view.page("trace")
    scene.until(lambda: len(page.sections.written.steps) > 60)
    scene.pause(0.3)


def trace_replay(scene: Scene, home: Path) -> None:
    from PySide6.QtCore import QPoint

    page = trace_page(scene, 12)
    page.replay_button.click()
    dialog = page.replay
    dialog.form._controls["temperature"].setValue(0.0)
    dialog.run.click()
    scene.until(lambda: dialog.run.isEnabled() and bool(dialog.now.piece.text()))
    dialog.move(scene.window.pos() + QPoint(190, 110))
    scene.over.append(dialog)
    scene.pause(0.4)


def trace_stopped(scene: Scene, home: Path) -> None:
    """Stopped while it read a long prompt."""
    scene.load("starter", n_ctx=8192)
    presenter = scene.view.presenter
    scene.ask("Foxes and hens and geese live on a farm. " * 700, wait=False)
    scene.until(lambda: any(s.n_cached < s.n_read < s.n_prompt for s in presenter.live_speeds.values()))
    presenter.stop()
    scene.until(lambda: not presenter.generating)
    scene.window.inside.show_trace(presenter.messages[-1].id)
    page = scene.window.inside.view.page("trace")
    scene.until(lambda: page.desk.trace is not None and page.desk.trace.marks is not None)
    scene.pause(1.0)


def trace_deleted(scene: Scene, home: Path) -> None:
    trace(scene, home)
    page = scene.window.inside.view.page("trace")
    scene.app.engine.chats.delete(scene.view.presenter.chat_id)
    scene.until(lambda: bool(page.desk.lost))
    scene.pause(0.5)


def bad_file(scene: Scene, home: Path) -> None:
    """A web page that was saved under the name of a model."""
    path = home / "Qwen3-8B-Q4_K_M.gguf"
    path.write_bytes(b"<!DOCTYPE html><html><body>Sign in to continue</body></html>")
    scene.window.control.load(path)
    scene.until(lambda: not scene.view.banner.isHidden())
    scene.pause(0.5)


def first_run_offline(scene: Scene, home: Path) -> None:
    os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
    first_run(scene, home)
    page = scene.window.models.first_run
    page.cards["chat"].button.click()
    scene.until(lambda: not page.error.isHidden())
    scene.pause(0.3)


def settings_traces(scene: Scene, home: Path) -> None:
    trace_page(scene)
    scene.window.show_settings()
    view = scene.window.settings_view
    scene.until(lambda: "take" in view.traces.used.text())
    view._scroll.ensureWidgetVisible(view.traces, 0, 0)
    scene.pause(0.4)


def settings_about(scene: Scene, home: Path, *, fails: bool = False) -> None:
    """The end of the settings, after a question for a new version that a stand-in has answered."""
    from engine import updates

    updates.built_in_feed = lambda: "https://github.com/owner/inglenook/latest.json"
    page = "https://github.com/owner/inglenook/releases/tag/v0.2.0"
    raw = json.dumps({"version": "0.2.0", "page": page, "released": "2026-12-01"}).encode()
    if not fails:
        updates._fetch = lambda feed: raw
    scene.window.show_settings()
    view = scene.window.settings_view
    view.about.check.click()
    scene.until(lambda: not scene.window.updates.is_asking)
    scene.pause(0.3)
    view._scroll.ensureWidgetVisible(view.about, 0, 200)
    scene.pause(0.4)


def newer_profile(scene: Scene, home: Path) -> None:
    """Chats that a newer version has written."""
    import sqlite3

    database = scene.app.engine.paths.database
    scene.until(database.exists)
    scene.app.engine.stop()
    with sqlite3.connect(database) as other:
        other.execute("PRAGMA user_version = 99")
    from engine.store.chats import ChatStore

    try:
        ChatStore(database)
    except Exception as error:
        scene.view.show_error(error)
    scene.pause(0.4)


def inside_model(scene: Scene, home: Path) -> None:
    scene.load("starter", n_ctx=4096)
    anatomy_page(scene)


def anatomy_page(scene: Scene) -> Any:
    scene.window.inside.show_model()
    page = scene.window.inside.view.page("model")
    scene.until(lambda: page.picture.anatomy is not None and page.panel.plan is not None)
    scene.pause(1.0)
    return page


def inside_model_split(scene: Scene, home: Path, *, moved: bool = False) -> None:
    """Two remote devices: llama.cpp's own servers on this machine."""
    import atexit
    import contextlib

    sys.path.insert(0, str(ROOT / "tests" / "worker"))
    from test_fit_real import servers

    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    os.environ["INGLENOOK_RPC_SERVERS"] = ",".join(stack.enter_context(servers(2)))
    scene.load("starter", n_ctx=4096, n_gpu_layers=24)
    page = anatomy_page(scene)
    if moved:
        page.panel.what_if.layers.slider.setValue(12)
        scene.until(lambda: page.source.text().startswith("as it would be"))
        bar = page.scroll_area.verticalScrollBar()
        bar.setValue(bar.maximum())
        scene.pause(1.5)
    else:
        from PySide6.QtCore import Qt
        from PySide6.QtTest import QTest

        for _ in range(17):
            QTest.keyClick(page.picture, Qt.Key.Key_Down)
        scene.pause(0.3)


def inside_model_small(scene: Scene, home: Path) -> None:
    small(scene)
    inside_model(scene, home)


def small(scene: Scene) -> None:
    """The least window, with the largest text."""
    for _ in range(5):
        scene.window.commands.larger_text()
    scene.window.resize(720, 480)
    scene.pause(0.5)


def tour_small(scene: Scene, home: Path) -> None:
    small(scene)
    tour(scene, home, step=7)


def tour(scene: Scene, home: Path, step: int = 0) -> None:
    scene.load("starter")
    scene.window.inside.show("tour")
    page = scene.window.inside.view.page("tour")
    scene.pause(0.3)
    if step:
        page.asking.button.click()
        scene.until(lambda: page.desk.facts() is not None and page.desk.facts().complete)
        if step == 9:
            page.go_to(8)
            page.exhibits.asking.button.click()
            scene.until(lambda: page.desk.follow.trace is not None and page.desk.follow.trace.marks is not None)
        page.go_to(step - 1)
        scene.pause(0.8)


def glossary(scene: Scene, home: Path, *, term: str = "kv_cache", words: str = "") -> Any:
    from engine.sampling import SamplingParams

    scene.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=60))
    scene.load("starter")
    scene.ask(QUESTION)
    scene.window.inside.show_term(term)
    page = scene.window.inside.view.page("glossary")
    scene.until(lambda: "tokenizer" in page._gatherer.facts() and "example_n" in page._gatherer.facts())
    page.search.setText(words)
    scene.pause(0.4)
    return page


def glossary_empty(scene: Scene, home: Path) -> None:
    scene.window.inside.show_term("ttft")
    scene.pause(0.4)


def glossary_small(scene: Scene, home: Path) -> None:
    scene.app.engine.change_settings(text_scale=1.5)
    scene.window.resize(720, 480)
    glossary(scene, home, term="tokenizer", words="token")


def monitor_dock(scene: Scene, home: Path, *, live: bool = True) -> None:
    """Two chats in the cache, an answer being written in the third."""
    from engine.sampling import SamplingParams

    scene.app.engine.change_settings(sampling=SamplingParams(temperature=0.7, max_tokens=90, seed=7))
    scene.window.resize(1366, 896)
    scene.load("starter", n_ctx=4096)
    if not scene.window.inside.monitor.wanted:
        scene.view.header.monitor_button.click()
    scene.ask("Compare Q4_K_M and Q5_K_M for a laptop.")
    scene.view.new_chat()
    scene.ask(QUESTION)
    if live:
        scene.app.engine.change_settings(sampling=SamplingParams(temperature=0.7, max_tokens=2000, seed=7))
        scene.ask("Tell a long story about a lighthouse.", wait=False)
        scene.until(lambda: len(scene.window.inside.monitor.feed.steps) > 150)
    scene.pause(0.6)


def monitor_idle(scene: Scene, home: Path) -> None:
    monitor_dock(scene, home, live=False)
    scene.pause(1.5)


def monitor_page(scene: Scene, home: Path, *, text: bool = False, bottom: bool = False) -> None:
    monitor_dock(scene, home)
    view = scene.window.inside.show("monitor")
    page = view.page("monitor")
    scene.until(lambda: page.decode_chart.plot is not None and page.step_chart.plot is not None)
    scene.pause(2.5)
    if text:
        page.as_text.click()
    if bottom:
        bar = page.scroll_area.verticalScrollBar()
        bar.setValue(bar.maximum())
    scene.pause(0.4)


def monitor_small(scene: Scene, home: Path) -> None:
    scene.app.engine.change_settings(text_scale=1.5)
    monitor_page(scene, home)
    scene.window.resize(720, 480)
    scene.pause(1.0)


def monitor_split(scene: Scene, home: Path) -> None:
    """Two remote devices: llama.cpp's own servers on this machine."""
    import atexit
    import contextlib

    sys.path.insert(0, str(ROOT / "tests" / "worker"))
    from test_fit_real import servers

    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    os.environ["INGLENOOK_RPC_SERVERS"] = ",".join(stack.enter_context(servers(2)))
    scene.load("starter", n_ctx=4096, n_gpu_layers=24)
    scene.view.header.monitor_button.click()
    scene.pause(2.5)


def monitor_empty(scene: Scene, home: Path) -> None:
    scene.view.header.monitor_button.click()
    scene.pause(1.5)


SCENES: dict[str, tuple[Callable[[Scene, Path], None], Any]] = {
    "chat": (chat, None),
    "rich": (rich, {"answers": [{"text": RICH}]}),
    "first": (first, None),
    "no-model": (no_model, {}),
    "died": (died, "abort_answer"),
    "died-safer": (died_safer, None),
    "died-small": (partial(died_safer, small=True), None),
    "context": (context, None),
    "context-fits": (context_fits, None),
    "settings": (settings, None),
    "answer-format": (answer_format, {}),
    "answer-format-wrong": (answer_format_wrong, {}),
    "answer-json": (answer_json, None),
    "settings-engine": (engine_page, None),
    "settings-engine-end": (engine_page_end, {}),
    "load-advanced": (advanced, {}),
    "load-advanced-end": (advanced_end, {}),
    "models": (models, {}),
    "models-offline": (models_offline, {}),
    "library": (library, None),
    "library-damaged": (damaged, {}),
    "downloads": (downloads, {}),
    "first-run": (first_run, {}),
    "monitor-dock": (monitor_dock, None),
    "monitor-idle": (monitor_idle, None),
    "monitor-page": (monitor_page, None),
    "monitor-text": (partial(monitor_page, text=True), None),
    "monitor-page-end": (partial(monitor_page, bottom=True), None),
    "monitor-small": (monitor_small, None),
    "monitor-split": (monitor_split, None),
    "monitor-empty": (monitor_empty, {}),
    "trace": (trace, None),
    "trace-prompt": (trace_prompt, None),
    "trace-small": (trace_small, None),
    "trace-live": (trace_live, None),
    "trace-stopped": (trace_stopped, None),
    "trace-deleted": (trace_deleted, None),
    "bad-file": (bad_file, None),
    "first-run-offline": (first_run_offline, {}),
    "trace-replay": (trace_replay, None),
    "settings-traces": (settings_traces, None),
    "settings-about": (settings_about, {}),
    "settings-about-failed": (partial(settings_about, fails=True), {}),
    "newer-profile": (newer_profile, {}),
    "inside-model": (inside_model, None),
    "inside-model-split": (inside_model_split, None),
    "inside-model-moved": (lambda scene, home: inside_model_split(scene, home, moved=True), None),
    "inside-model-small": (inside_model_small, None),
    "tour": (tour, None),
    "tour-small": (tour_small, None),
    **{f"tour-{n}": (partial(tour, step=n), None) for n in range(1, 10)},
    "glossary": (glossary, None),
    "glossary-search": (partial(glossary, term="quantization", words="quant"), None),
    "glossary-small": (glossary_small, None),
    "glossary-empty": (glossary_empty, None),
    "bench": (bench, None),
    "bench-runs": (bench_runs, None),
}


def take(name: str, theme: str, scale: str, out: Path) -> None:
    from PySide6.QtGui import QPainter

    from desktop import app

    qt = app.make_qt_app(["screenshots"])
    work, script = SCENES[name]
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(qt, Path(folder), theme, script)
        work(scene, Path(folder))
        out.mkdir(parents=True, exist_ok=True)
        picture = scene.window.grab()
        painter = QPainter(picture)
        for popup in scene.over:
            painter.drawPixmap(popup.pos() - scene.window.pos(), popup.grab())
        painter.end()
        picture.save(str(out / f"{name}-{theme}-{scale}x.png"))
        scene.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--scene", choices=list(SCENES))
    parser.add_argument("--theme", choices=["light", "dark"])
    parser.add_argument("--scale", choices=["1", "2"])
    options = parser.parse_args()
    if options.scene and options.theme and options.scale:
        take(options.scene, options.theme, options.scale, options.out)
        return
    for scene in [options.scene] if options.scene else list(SCENES):
        for theme in [options.theme] if options.theme else ["light", "dark"]:
            for scale in [options.scale] if options.scale else ["1", "2"]:
                env = {**os.environ, "QT_SCALE_FACTOR": scale}
                one = ["--scene", scene, "--theme", theme, "--scale", scale]
                subprocess.run([sys.executable, __file__, str(options.out), *one], env=env, check=True)
                print(options.out / f"{scene}-{theme}-{scale}x.png")


if __name__ == "__main__":
    main()
