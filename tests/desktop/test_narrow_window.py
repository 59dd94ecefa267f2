"""The least window with the largest text: what does not fit is left out or shortened, never cut by the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QRect
from PySide6.QtWidgets import QComboBox, QScrollArea, QWidget


@pytest.fixture
def narrow(shell: Any, model_file: Path) -> Any:
    one = shell({"answers": [{"text": "word " * 60, "delay_s": 0.001}]})
    one.app.engine.change_settings(text_scale=1.5)
    one.window.resize(200, 200)  # as small as it gets
    one.load(model_file)
    return one


def inside(widget: QWidget, around: QWidget) -> bool:
    place = QRect(widget.mapTo(around, QPoint(0, 0)), widget.size())
    return around.rect().contains(place)


def test_the_header_and_the_strip_keep_within_their_room(narrow: Any) -> None:
    narrow.answer("Hi")
    header, strip = narrow.view.header, narrow.view.strip
    narrow.wait(lambda: strip.context.text() != "")
    for part in (header.picker, header.settings_button, header.monitor_button, header.rate):
        assert part.isHidden() or inside(part, header), part.objectName()
    assert header.rate.isHidden() and header.picker.width() > 100, "the name comes before the speed"
    narrow.wait(lambda: inside(strip.context, strip))
    assert "of 8,192 tokens" in strip.context.text()
    assert "room for" in strip.context.accessibleDescription(), "the rest is told all the same"
    narrow.window.resize(1280, 800)
    narrow.wait(lambda: header.rate.isVisible() and "room for" in strip.context.text())
    assert header.rate.text().endswith("tok/s") and inside(header.rate, header)


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
def test_the_settings_are_no_wider_than_the_window(narrow: Any, scale: float) -> None:
    narrow.app.engine.change_settings(text_scale=scale)
    narrow.window.actions_["view_settings"].trigger()
    page = narrow.window.views.currentWidget()
    area = page.findChild(QScrollArea, "settings_scroll")
    narrow.wait(area.isVisible)
    if scale > 1.5:  # then all of it can be reached
        narrow.wait(lambda: area.horizontalScrollBar().maximum() >= area.widget().width() - area.viewport().width())
        return
    narrow.wait(lambda: area.widget().width() <= area.viewport().width(), 5)
    for box in area.findChildren(QComboBox):
        if box.isVisible():
            assert inside(box, area.widget()), box.objectName()
