"""Figures that change do not make Qt lay the window out again; what they say is never cut off."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QHBoxLayout, QWidget

from desktop.widgets.figure_label import FigureLabel


class Requests(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.LayoutRequest
        return False


def test_new_figures_ask_for_no_layout(qtbot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    row = QHBoxLayout(window)
    label = FigureLabel()
    row.addWidget(label)
    label.setText("decode 11.1 tok/s")
    window.show()
    qtbot.waitExposed(window)
    qtbot.wait(50)
    watch = Requests()
    window.installEventFilter(watch)
    for number in range(50):
        label.setText(f"decode {10 + number}.{number % 10} tok/s")
        qtbot.wait(1)
    assert watch.count == 0
    label.setText("decode 1,234.5 tok/s")  # longer: it needs more room
    qtbot.wait(20)
    assert watch.count > 0


def test_every_text_has_room(qtbot) -> None:
    label = FigureLabel()
    qtbot.addWidget(label)
    for text in (
        "",
        "—",
        "decode —",
        "decode 9.9 tok/s",
        "decode 88.8 tok/s",
        "reading the prompt 1 of 2,048",
        "x",
        "no model",
    ):
        label.setText(text)
        assert label.width() >= label.fontMetrics().horizontalAdvance(text), text
        assert label.text() == text
