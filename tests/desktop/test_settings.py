"""Settings hold at once, reach the disk, and refuse what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QPalette, QWheelEvent
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from desktop.drafts import Draft
from desktop.theme import DARK, LIGHT
from desktop.views.settings.chat_settings import ChatSettingsDialog
from desktop.views.settings.sampling_fields import GROUPS
from desktop.views.settings.sampling_form import SamplingForm, escape, parse_bias, unescape
from engine.errors import InvalidRequest
from engine.message import ChatSettings
from engine.sampling import SamplingParams


@pytest.fixture
def form(qtbot) -> SamplingForm:
    made = SamplingForm()
    qtbot.addWidget(made)
    made.show()
    made.seen = []
    made.changed.connect(made.seen.append)
    return made


def control(form: SamplingForm, name: str) -> QWidget:
    return form._controls[name]


def test_every_sampling_parameter_has_a_control() -> None:
    assert {f.name for g in GROUPS for f in g.fields} == set(SamplingParams.__struct_fields__)


def test_the_form_shows_and_gives_back_any_parameters(form) -> None:
    params = SamplingParams(
        temperature=0.35, top_k=0, top_p=0.5, min_p=0.1, typical_p=0.9, top_n_sigma=1.5, repeat_penalty=1.1,
        repeat_last_n=-1, presence_penalty=-0.5, frequency_penalty=0.25, dry_multiplier=0.8, dry_base=2.0,
        dry_allowed_length=3, dry_penalty_last_n=128, dry_sequence_breakers=("\n", "\\", "*"), xtc_probability=0.5,
        xtc_threshold=0.2, mirostat=2, mirostat_tau=4.5, mirostat_eta=0.0125, logit_bias={7: -1e9, 9: 1.5},
        seed=2**32 - 1, max_tokens=77, stop=("User:", "\n\n"),
    )  # fmt: skip
    form.set_params(params)
    form.commit()
    assert form.params == params
    assert form.seen == []


def test_a_value_finer_than_the_control_is_not_rounded_by_looking_at_it(form) -> None:
    form.set_params(SamplingParams(temperature=0.123456))
    form.commit()
    assert form.params.temperature == 0.123456


def test_a_change_is_given_on_a_moment_later(form, qtbot) -> None:
    control(form, "temperature").setValue(0.2)
    control(form, "top_k").setValue(12)
    qtbot.waitUntil(lambda: bool(form.seen))
    assert form.seen == [SamplingParams(temperature=0.2, top_k=12)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("seed", "abc", "Seed must be a whole number"),
        ("seed", str(2**32), "seed must be between"),
        ("logit_bias", "12 5", "token id: number"),
        ("logit_bias", "5: nan", "token id: number"),
    ],
)
def test_what_cannot_be_is_said_and_the_old_value_stays(form, name: str, text: str, words: str) -> None:
    widget = control(form, name)
    widget.setText(text) if name == "seed" else widget.setPlainText(text)
    form.commit()
    assert form.seen == []
    assert words in form.error.text()
    assert widget.property("invalid") == "true"
    widget.clear()
    form.commit()
    assert not form.error.isVisible()
    assert widget.property("invalid") == "false"


def test_reset_of_one_and_of_all(form) -> None:
    form.set_params(SamplingParams(temperature=0.1, top_k=3), SamplingParams(temperature=0.7))
    shown = [name for name, button in form._resets.items() if button.isVisible()]
    assert shown == ["temperature", "top_k"]
    form._resets["top_k"].click()
    assert form.params == SamplingParams(temperature=0.1)
    form.reset_all.click()
    assert form.params == SamplingParams(temperature=0.7)
    assert form.seen == [SamplingParams(temperature=0.1), SamplingParams(temperature=0.7)]


def test_the_wheel_scrolls_the_page_and_not_the_values(form) -> None:
    box = control(form, "temperature")
    box.clearFocus()
    event = QWheelEvent(
        QPointF(5, 5), QPointF(5, 5), QPoint(0, 0), QPoint(0, 120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    box.wheelEvent(event)
    assert box.value() == 0.8
    assert not event.isAccepted()


@pytest.mark.parametrize("text", ["\n", "a\tb\\n", "\\", "plain", "\\\\n\n"])
def test_one_line_holds_any_text(text: str) -> None:
    assert "\n" not in escape(text)
    assert unescape(escape(text)) == text


def test_bias_lines() -> None:
    assert parse_bias("1: 2.5\n\n 7 : -1e9 ") == {1: 2.5, 7: -1e9}
    with pytest.raises(InvalidRequest):
        parse_bias("x: 1")


# ------------------------------------------------------------------ the page in the running window


@pytest.fixture
def page(shell):
    one = shell()
    one.window.actions_["view_settings"].trigger()
    assert one.window.views.currentWidget() is one.window.settings_view
    one.settings = one.window.settings_view
    one.wait(lambda: one.settings.sampling is not None)
    return one


def saved(one) -> dict[str, object]:
    path: Path = one.app.engine.paths.settings_file
    return json.loads(path.read_text()) if path.exists() else {}


def test_the_theme_changes_the_window_at_once(page) -> None:
    page.settings.theme.setCurrentIndex(page.settings.theme.findData("dark"))
    app = QApplication.instance()
    page.wait(lambda: app.palette().color(QPalette.ColorRole.Window).name().upper() == DARK.paper)
    sheet = page.window.styleSheet()
    assert DARK.paper in sheet and LIGHT.paper not in sheet
    page.wait(lambda: saved(page).get("theme") == "dark")
    assert page.view.strip.meter._theme is DARK


def test_larger_text_reaches_everything(page) -> None:
    before = page.view.composer.edit.font().pixelSize()
    page.settings.text_scale.setCurrentIndex(page.settings.text_scale.findData(2.0))
    page.wait(lambda: page.view.composer.edit.font().pixelSize() == 2 * before)
    assert QApplication.font().pixelSize() >= 26
    page.wait(lambda: saved(page).get("text_scale") == 2.0)
    page.window.actions_["smaller_text"].trigger()
    page.wait(lambda: page.app.engine.settings.text_scale == 1.9)


def test_enter_behaviour_and_status_line(page) -> None:
    page.settings._boxes["enter_sends"].setChecked(False)
    page.settings._boxes["show_status"].setChecked(False)
    page.wait(lambda: not page.view.composer.edit.enter_sends)
    page.window.actions_["view_chat"].trigger()
    page.wait(lambda: not page.view.strip._figures.isVisible())
    assert page.view.strip.meter.isVisible(), "the context stays in view"


def test_reduced_motion_stops_the_blinking_cursor(page) -> None:
    page.settings._boxes["reduced_motion"].setChecked(True)
    page.wait(lambda: QApplication.cursorFlashTime() == 0)
    page.settings._boxes["reduced_motion"].setChecked(False)
    page.wait(lambda: QApplication.cursorFlashTime() != 0)


def test_the_system_prompt_is_saved(page) -> None:
    page.settings.system_prompt.setPlainText("Answer briefly.")
    page.wait(lambda: saved(page).get("system_prompt") == "Answer briefly.")


def test_sampling_of_all_chats_is_saved(page) -> None:
    page.settings.sampling._controls["temperature"].setValue(0.25)
    page.wait(lambda: page.app.engine.settings.sampling.temperature == 0.25)
    page.wait(lambda: "sampling" in saved(page))


def test_a_chat_has_settings_of_its_own(shell, model_file: Path, qtbot) -> None:
    one = shell()
    one.load(model_file)
    one.answer("hello")
    one.window.actions_["chat_settings"].trigger()
    dialog = one.window.findChild(ChatSettingsDialog)
    dialog.system_prompt.setPlainText("You are a poet.")
    assert not dialog.form.isEnabled()
    dialog.own_sampling.setChecked(True)
    dialog.form._controls["top_k"].setValue(7)
    dialog.close()
    chat_id = one.presenter.chat_id
    wanted = ChatSettings("You are a poet.", SamplingParams(top_k=7))
    one.wait(lambda: one.presenter.chat is not None and one.presenter.chat.settings == wanted)
    assert one.result(one.app.engine.chats.open(chat_id))[0].settings == wanted
    answer = one.answer("again")
    assert answer.generation.sampling.top_k == 7


@pytest.mark.parametrize("way", ["button", "escape", "cross"])
def test_every_way_closes_the_settings_of_a_chat_and_keeps_them(shell, qtbot, way: str) -> None:
    one = shell()
    one.window.actions_["chat_settings"].trigger()
    dialog = one.window.findChild(ChatSettingsDialog)
    qtbot.waitExposed(dialog)
    kept = []
    dialog.changed.connect(kept.append)
    dialog.system_prompt.setPlainText("You are a poet.")
    if way == "button":
        qtbot.mouseClick(dialog.findChild(QPushButton, "chat_settings_done"), Qt.MouseButton.LeftButton)
    elif way == "escape":
        qtbot.keyClick(dialog.system_prompt, Qt.Key.Key_Escape)
    else:
        dialog.close()
    one.wait(lambda: one.window.findChild(ChatSettingsDialog) is None)
    assert kept == [ChatSettings(system_prompt="You are a poet.")]


def test_settings_of_a_chat_that_is_not_stored_yet_store_it(shell) -> None:
    one = shell()
    one.view.composer.set_draft(Draft("not sent"))
    one.view.composer.changed.emit()
    one.presenter.set_settings(ChatSettings(system_prompt="Short."))
    one.wait(lambda: one.presenter.chat is not None and one.presenter.chat.settings.system_prompt == "Short.")
    assert one.view.composer.text() == "not sent"
    assert one.window.drafts.get(one.presenter.chat_id).text == "not sent"
