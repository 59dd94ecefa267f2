"""The glossary in the window: found, linked, and with figures of the model that is really loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QCursor, QHelpEvent
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QSpinBox, QToolTip, QWidget
from test_a11y import controls

from desktop.views.chat.message_footer import MessageFooter
from desktop.views.glossary import facts
from desktop.views.glossary.facts import EXAMPLE, Known, facts_of
from desktop.views.settings.chat_settings import ChatSettingsDialog
from desktop.widgets.term import WHAT_IS_THIS, TermHelp, explain, help_of, term_of
from engine import events, glossary
from engine.figures import DeviceFigures, FitSummary
from engine.message import GenerationRecord, Reread, Timings, Usage
from engine.sampling import SamplingParams


def open_page(one: Any, term_id: str = "") -> Any:
    one.window.inside.show_term(term_id)
    return one.window.inside.view.page("glossary")


def test_searching_choosing_and_going_back(shell, qtbot) -> None:
    one = shell()
    page = open_page(one)
    assert len(page.list.ids) == len(glossary.terms())
    qtbot.keyClicks(page.search, "kvcache")
    assert page.list.ids[0] == "kv_cache"
    qtbot.keyClick(page.search, Qt.Key.Key_Return)
    assert page.term_id == "kv_cache" and page.view.title.text() == "KV cache"
    qtbot.keyClick(page.search, Qt.Key.Key_Escape)
    assert page.search.text() == "" and len(page.list.ids) == len(glossary.terms())
    link = next(link for link in page.view.links if link.objectName() == "see_attention")
    assert link.toolTip() == glossary.short("attention")
    link.click()
    assert page.term_id == "attention" and not page.view.back.isHidden()
    page.view.back.click()
    assert page.term_id == "kv_cache"
    qtbot.keyClicks(page.search, "xyzzy")
    assert page.list.ids == [] and not page.none.isHidden() and page.term_id == "kv_cache"


def test_the_arrow_keys_go_from_the_field_through_the_terms(shell, qtbot) -> None:
    one = shell()
    page = open_page(one)
    qtbot.keyClicks(page.search, "penalty")
    qtbot.keyClick(page.search, Qt.Key.Key_Down)
    first = page.list.ids[0]
    assert page.term_id == first
    qtbot.keyClick(page.list, Qt.Key.Key_Down)
    assert page.term_id == page.list.ids[1] != first


def test_without_a_model_it_says_that_one_is_needed(shell) -> None:
    one = shell()
    page = open_page(one, "kv_cache")
    assert "Load a model" in page.view.live.text() and not page.view.box.isHidden()
    page.show_term("prefill")
    assert page.view.live.text() == "After an answer its figures stand here."
    page.show_term("rag")
    assert page.view.box.isHidden()  # nothing of it can be seen on a computer
    page.show_term("ram")
    one.wait(lambda: "are free on this computer" in page.view.live.text())
    page.show_term("no such term")
    assert page.term_id == "ram"


def test_live_sentences_show_the_figures_of_the_model_that_is_loaded(shell, starter_model: Path) -> None:
    one = shell(real=True)
    one.app.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=12))
    one.load(starter_model)
    memories: list[events.Memory] = []
    one.app.bridge.memory_changed.connect(memories.append)
    answer = one.answer("Why is the sky blue?")
    page = open_page(one, "kv_cache")
    one.wait(lambda: {"kv_used_bytes", "example_n", "ram_total"} <= page._gatherer.facts().keys())
    model = one.window.control.state.model
    used, usage = memories[-1].kv_used_cells, answer.generation.usage
    assert used >= usage.prompt_tokens + usage.completion_tokens - 1
    text = page.view.live.text()
    assert f"holds {used:,} of {model.n_ctx:,} tokens" in text
    assert "keys as F16 and values as F16" in text
    page.show_term("token")
    pieces = one.result(one.app.engine.tokenize(EXAMPLE)).pieces
    assert b"".join(pieces).decode() == EXAMPLE
    assert f"is {len(pieces)} tokens:" in page.view.live.text()
    page.show_term("attention_head")
    assert "9 heads that share 3 sets" in page.view.live.text()
    page.show_term("ttft")
    assert f"{answer.generation.timings.ttft_s:.2f} s" in page.view.live.text()
    page.show_term("finish_reason")
    assert "a limit was reached" in page.view.live.text()
    page.show_term("moe")
    assert page.view.live.text() == "The loaded model and this computer have nothing of this now."
    page.show_term("reread")
    assert page.view.live.text() == "Nothing of this happened in the last answer."
    page.show_term("kv_cache")
    one.window.control.unload()
    one.wait(lambda: "Load a model" in page.view.live.text())


def test_nothing_is_gathered_while_it_is_not_on_screen(shell, model_file: Path, monkeypatch) -> None:
    one = shell()
    page = open_page(one, "kv_cache")
    one.window.show_chat()
    asked: list[object] = []
    monkeypatch.setattr(page._gatherer, "renew", lambda: asked.append(1))
    one.load(model_file)
    one.answer("hello")
    assert asked == []
    open_page(one)
    assert asked


# ------------------------------------------------------------------ facts


def model(**changes: Any) -> events.ModelInfo:
    base: dict[str, Any] = {
        "path": "/m.gguf",
        "name": "M",
        "architecture": "llama",
        "quantization": "Q4_K_M",
        "n_params": 8_030_000_000,
        "size_bytes": 5 * 2**30,
        "n_ctx": 8192,
        "n_ctx_train": 131072,
        "n_slots": 4,
        "n_vocab": 128256,
        "n_layer": 32,
        "n_embd": 4096,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_threads": 8,
        "n_gpu_layers": 0,
        "template": events.TemplateInfo(source="file"),
        "kv_bytes": 2**30,
        "buffers": {"CPU model": 4 * 2**30, "CPU KV": 2**30, "CPU compute": 300 * 2**20},
    }
    return events.ModelInfo(**{**base, **changes})


def test_facts_that_are_not_known_are_absent() -> None:
    assert facts_of(Known()) == {}
    found = facts_of(Known(model=model(n_threads=0, kv_bytes=0)))
    assert (
        not {"kv_bytes", "n_threads", "gpu_name", "n_gpu_layers", "kv_used", "thinking_tag", "adapters"} & found.keys()
    )
    assert found["params"] == "8.0 billion" and found["weights_bytes"] == "4.0 GiB"
    assert all(value and value != facts.figures.DASH for value in found.values())


def test_the_share_of_the_cache_is_only_said_where_every_token_takes_the_same() -> None:
    memory = events.Memory(rss_bytes=1, kv_used_cells=1024, kv_total_cells=8192)
    found = facts_of(Known(model=model(), memory=memory))
    assert found["kv_used"] == "1,024" and "kv_used_bytes" not in found  # its file was not read yet


def test_facts_of_a_gpu_and_of_a_plan() -> None:
    gpu = events.Device("CUDA0", "RTX 4090", "gpu", "CUDA", 10 * 2**30, 24 * 2**30)
    part = DeviceFigures("CUDA0", 4 * 2**30, 2**30, 2**28, 0, 4 * 2**30, 2**30, 2**28)
    fit = FitSummary("gpu", devices=(part,), decode_tps_low=90, decode_tps_high=110, error=-0.012)
    found = facts_of(Known(model=model(n_gpu_layers=33, devices=(gpu,), fit=fit)))
    assert (found["n_gpu_layers"], found["n_layers_all"]) == ("33", "33")
    assert found["gpu_free"] == "10.0 GiB" and found["fit_error"] == "1.2 %"
    assert found["predicted_bytes"] == found["measured_bytes"] == "5.2 GiB"
    assert found["speed_range"] == "90.0 to 110.0"


def test_facts_of_an_answer() -> None:
    record = GenerationRecord(
        finish_reason="stop",
        stop_string="END",
        usage=Usage(100, 20, 60, drafted_tokens=10, accepted_tokens=7),
        timings=Timings(0.0, 0.002, 0.4, 0.41, 1.0, 100.0, 19.0),
        reread=Reread(3, "changed", 40),
    )
    found = facts_of(Known(model=model(), record=record))
    assert (found["fresh_tokens"], found["accepted"], found["reread_tokens"]) == ("40", "7", "40")
    assert found["finish"] == "the stop text “END” came" and found["template_s"] == "2 ms"
    assert found["passes"] == "12.3"  # right guesses do not cost a pass each
    assert found["traffic"] == f"{19 * (1 - 7 / 20) * 4 * 2**30 / 1e9:.1f} GB"
    assert "finish" not in facts_of(Known(record=GenerationRecord()))


def test_every_fact_of_a_live_sentence_can_be_known(tmp_path: Path) -> None:
    source = Path(facts.__file__).read_text()
    fields = {f"sampling_{name}" for name in SamplingParams.__struct_fields__}
    for term in glossary.terms():
        for template in term.live:
            for name in glossary.facts_in(template):
                assert name in fields or f'"{name}"' in source, (term.id, name)


# ------------------------------------------------------------------ linking


def test_a_label_takes_its_term_and_keeps_better_words(qtbot) -> None:
    label = QLabel("KV")
    qtbot.addWidget(label)
    explain(label, "kv_cache")
    assert label.toolTip().startswith(glossary.short("kv_cache")) and "F1" in label.toolTip()
    explain(label, "kv_type", "How keys are kept")
    assert label.toolTip().startswith("How keys are kept") and term_of(label) == "kv_type"
    label.setToolTip("changed later")
    explain(label, "kv_type", "")
    assert label.toolTip() == "changed later"


def test_what_is_this_is_in_the_menu_of_a_label_and_a_field_keeps_its_own(shell, qtbot) -> None:
    one = shell()
    label = QLabel("KV", one.window.chat_page)
    explain(label, "kv_cache")
    label.show()
    assert help_of(label) is one.window.inside.help
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, QPoint(2, 2), label.mapToGlobal(QPoint(2, 2)))
    QApplication.sendEvent(label, event)
    menu = label.findChild(QMenu)
    assert menu is not None and [action.text() for action in menu.actions()] == [WHAT_IS_THIS]
    menu.actions()[0].trigger()
    assert one.window.inside.view.page("glossary").term_id == "kv_cache"
    menu.close()
    box = QSpinBox(one.window.chat_page)
    explain(box, "top_k")
    box.show()
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, QPoint(2, 2), box.mapToGlobal(QPoint(2, 2)))
    QApplication.sendEvent(box, event)
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    texts = [action.text() for action in menu.actions()]
    assert texts[-1] == WHAT_IS_THIS and "Step up" in texts
    menu.close()


def test_f1_opens_the_glossary_at_what_has_the_focus(shell, qtbot) -> None:
    one = shell()
    one.window.activateWindow()
    meter = one.view.strip.meter
    meter.setFocus()
    qtbot.keyClick(meter, Qt.Key.Key_F1)
    page = one.window.inside.view.page("glossary")
    assert page.term_id == term_of(meter) == "context_window"
    assert one.window.views.currentWidget() is one.window.inside.view


def test_f1_without_a_term_opens_the_glossary_where_it_was(shell) -> None:
    one = shell()
    opened: list[str] = []
    help_ = TermHelp(one.window, opened.append)
    edit = one.view.composer.edit
    edit.setFocus()
    QCursor.setPos(edit.mapToGlobal(edit.rect().center()))  # it may rest on a term since another test
    help_.open_at_hand()
    assert opened == [""]


def test_every_control_of_the_page_has_a_name_a_tooltip_and_the_focus(shell) -> None:
    one = shell()
    page = open_page(one, "kv_cache")
    page.show_term("attention")
    for control in controls(page):
        if control.isVisible():
            words = control.accessibleName() or getattr(control, "text", str)()
            assert words and control.toolTip(), control.objectName()
            assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, control.objectName()


def test_facts_of_answers_are_those_that_an_answer_brings() -> None:
    record = GenerationRecord(
        finish_reason="stop",
        sampling=SamplingParams(seed=1),
        usage=Usage(100, 20, 60, 5, 5, 10, 7),
        timings=Timings(0.1, 0.1, 0.4, 0.41, 1.0, 100.0, 19.0),
        reread=Reread(3, "changed", 40),
        n_dropped=2,
    )
    assert set(facts_of(Known(record=record))) | {"traffic", "passes"} == facts.OF_ANSWERS


def test_figures_under_an_answer_are_explained(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.answer("hello")
    footers = [f for f in one.window.findChildren(MessageFooter) if f.isVisible() and f._areas]
    footer = footers[-1]
    area, words = next((area, text) for area, text in footer._areas if text.endswith("tok/s"))
    place = area.center().toPoint()
    assert footer.term_at(place) == "tokens_per_second", words
    QApplication.sendEvent(footer, QHelpEvent(QEvent.Type.ToolTip, place, footer.mapToGlobal(place)))
    assert QToolTip.text().startswith(glossary.short("tokens_per_second"))
    assert term_of(footer, footer.mapToGlobal(place)) == "tokens_per_second"
    QToolTip.hideText()


def test_f1_works_in_a_dialog_and_in_a_popup(shell, qtbot, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.answer("hello")
    one.window.commands.open_chat_settings()
    dialog = one.window.findChild(ChatSettingsDialog)
    dialog.own_sampling.setChecked(True)
    dialog.activateWindow()
    field = dialog.findChild(QWidget, "sampling_min_p")
    field.setFocus()
    one.wait(field.hasFocus)
    qtbot.keyClick(field, Qt.Key.Key_F1)
    page = one.window.inside.view.page("glossary")
    assert page.term_id == "min_p"
    one.window.show_chat()
    one.view.strip.meter.click()
    popup = one.view.context.popup
    one.wait(popup.isVisible)
    button = popup.policy.button("roll")
    button.setFocus()
    one.wait(button.hasFocus)
    qtbot.keyClick(button, Qt.Key.Key_F1)
    assert page.term_id == "dropped_turns" and not popup.isVisible()
