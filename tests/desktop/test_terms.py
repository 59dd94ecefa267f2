"""Labels, options and figures are linked to terms that exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QLineEdit, QWidget

import resources
from desktop import terms
from desktop.models import quant_table
from desktop.models.quant_table import QuantTable
from desktop.views.bench import results
from desktop.views.chat import message_footer, status_strip
from desktop.views.chat.message_footer import term_of_figure
from desktop.views.hub.what_if import WhatIf
from desktop.views.inside.inside_view import PAGES
from desktop.views.settings.engine_page import _SAVINGS
from desktop.views.settings.option_form import OptionForm
from desktop.views.settings.sampling_fields import GROUPS
from desktop.views.settings.sampling_form import SamplingForm
from desktop.widgets import context_bar, memory_bar
from desktop.widgets.context_bar import Segment
from desktop.widgets.context_meter import ContextMeter
from desktop.widgets.memory_bar import MemoryBar, MemoryLegend, Part
from desktop.widgets.term import PROPERTY, _own_menu, term_of
from engine import glossary
from engine.engine_options import OPTIONS
from engine.settings import Settings

ROOT = Path(__file__).resolve().parents[2] / "desktop"
MAPS = {name: value for name, value in vars(terms).items() if name.isupper()}


def ids_in_code() -> Iterator[tuple[str, str]]:
    """(place, id) of every term that code names: in calls of `explain` and `show_term`, and as `term=`."""
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            found = [keyword.value for keyword in node.keywords if keyword.arg == "term"]
            if name == "explain" and len(node.args) > 1:
                found.append(node.args[1])
            if name in ("show_term", "short") and node.args:
                found.append(node.args[0])
            for value in found:
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", value.value


def test_every_term_that_code_names_exists() -> None:
    found = list(ids_in_code())
    assert len(found) > 40
    assert [(place, term_id) for place, term_id in found if glossary.term(term_id) is None] == []


@pytest.mark.parametrize("name", MAPS)
def test_the_maps_lead_to_terms(name: str) -> None:
    assert [key for key, term_id in MAPS[name].items() if glossary.term(term_id) is None] == []


def test_nothing_that_is_shown_is_missing_from_the_maps() -> None:
    assert set(terms.SAMPLING) == {field.name for group in GROUPS for field in group.fields}
    assert set(terms.OPTIONS) == set(OPTIONS)
    assert set(terms.MEMORY) == set(memory_bar.KINDS)
    assert set(terms.CONTEXT) == set(context_bar.KINDS)
    assert set(terms.STATUS) == set(status_strip._NAMES)
    assert {name for name, _ in _SAVINGS} <= set(terms.SETTINGS) <= set(Settings.declared())
    assert len(quant_table.TERMS) == QuantTable().columnCount()
    assert all(not term_id or glossary.term(term_id) for term_id in quant_table.TERMS)
    assert all(glossary.term(column.term) for column in results._COLUMNS)
    assert all(glossary.term(term_id) for _, term_id in message_footer._TERMS)


def linked(widget: QWidget) -> dict[str, str]:
    """Object name -> term of everything below a widget that has one of its own."""
    return {w.objectName(): str(w.property(PROPERTY)) for w in widget.findChildren(QWidget) if w.property(PROPERTY)}


def test_every_sampling_parameter_and_option_is_linked(qtbot) -> None:
    form = SamplingForm()
    qtbot.addWidget(form)
    found = linked(form)
    for group in GROUPS:
        for field in group.fields:
            assert found[f"sampling_{field.name}"] == terms.SAMPLING[field.name]
            assert "F1" in form._controls[field.name].toolTip()
    names = [name for name in OPTIONS if name not in ("tensor_split", "n_cpu_moe", "adapters")]
    options = OptionForm(names)
    qtbot.addWidget(options)
    for name in names:
        assert linked(options)[name] == terms.OPTIONS[name]
    controls = WhatIf(with_split=True)
    qtbot.addWidget(controls)
    found = linked(controls)
    for name, term_id in (("context", "context_window"), ("layers", "offload"), ("experts", "cpu_moe")):
        assert found[f"what_if_{name}"] == term_id


def test_every_label_of_the_window_leads_to_a_term(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.answer("hello")
    one.window.actions_["view_settings"].trigger()
    one.wait(lambda: one.window.settings_view.sampling is not None)
    one.window.show_models()
    one.window.bench.show()
    for page in PAGES:
        one.window.inside.show(page.id)
    found = [str(w.property(PROPERTY)) for w in one.window.findChildren(QWidget) if w.property(PROPERTY)]
    assert len(found) > 80
    assert {term_id for term_id in found if glossary.term(term_id) is None} == set()
    strip = one.view.strip
    assert [term_of(label) for label in strip._values.values()] == [terms.STATUS[key] for key in strip._values]


def test_painted_places_have_terms_of_their_own(qtbot) -> None:
    bar = MemoryBar()
    bar.resize(100, 20)
    bar.set_parts([Part("weights", 50), Part("kv", 20)], 100)
    qtbot.addWidget(bar)
    assert bar.term_at(QPoint(10, 5)) == "weights" and bar.term_at(QPoint(60, 5)) == "kv_cache"
    assert term_of(bar, bar.mapToGlobal(QPoint(90, 5))) == terms.MEMORY["free"]
    legend = MemoryLegend()
    legend.resize(600, 40)
    legend.set_entries([("weights", "1.00"), ("compute", "0.10")])
    qtbot.addWidget(legend)
    (_, _, _, _), (_, _, second_x, second_y) = legend._places(600)
    assert legend.term_at(QPoint(4, 4)) == "weights"
    assert legend.term_at(QPoint(round(second_x) + 4, round(second_y) + 4)) == "compute_buffer"
    meter = ContextMeter()
    meter.resize(100, 20)
    meter.set_segments([Segment("system", 50), Segment("free", 50)], 100, "")
    qtbot.addWidget(meter)
    assert meter.term_at(QPoint(10, 5)) == "system_prompt" and meter.term_at(QPoint(90, 5)) == "context_window"


@pytest.mark.parametrize(
    ("text", "term_id"),
    [
        ("0.21 s to first token", "ttft"),
        ("118 tok/s", "tokens_per_second"),
        ("1 token", "token"),
        ("64 tokens", "token"),
        ("stop", "finish_reason"),
        ("JSON by schema", "answer_format"),
    ],
)
def test_figures_under_an_answer_have_terms(text: str, term_id: str) -> None:
    assert term_of_figure(text) == term_id


def test_a_field_keeps_what_its_menu_can_do(qtbot) -> None:
    edit = QLineEdit("words")
    qtbot.addWidget(edit)
    texts = " ".join(action.text() for action in _own_menu(edit).actions())
    assert "Paste" in texts and "Undo" in texts


def test_the_start_of_the_window_reads_no_glossary(shell, monkeypatch) -> None:
    read: list[str] = []
    real = resources.data
    monkeypatch.setattr(resources, "data", lambda name: (read.append(name), real(name))[1])
    glossary.load.cache_clear()
    glossary._by_id.cache_clear()
    one = shell()
    assert [name for name in read if name.startswith("glossary/")] == []
    one.window.inside.show_term("kv_cache")
    assert "glossary/en.json" in read
