"""The bars of memory: proportions, what is said aloud, hatching that tells the kinds apart without colours."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QImage, QPainter
from pytestqt.qtbot import QtBot

from desktop.theme import DARK, LIGHT, Theme
from desktop.widgets.fit_chip import FitChip, chip_for
from desktop.widgets.memory_bar import (
    KINDS,
    MemoryBar,
    MemoryLegend,
    Part,
    gib,
    layout_parts,
    paint_kind,
    stripes,
    words_of,
)

GIB = 1024**3


def test_stretches_are_in_proportion_and_side_by_side() -> None:
    placed = layout_parts([Part("weights", 4 * GIB), Part("kv", 2 * GIB), Part("other", GIB)], 8 * GIB, 800)
    assert placed == [("weights", 0.0, 400.0), ("kv", 400.0, 200.0), ("other", 600.0, 100.0)]


def test_more_than_there_is_never_leaves_the_bar() -> None:
    placed = layout_parts([Part("weights", 30 * GIB), Part("kv", 10 * GIB)], 8 * GIB, 400)
    assert placed[-1][1] + placed[-1][2] == pytest.approx(400)
    bar = [Part("weights", 30 * GIB), Part("kv", 10 * GIB)]
    assert "32.0 GiB more than the 8.0 GiB there are" in words_of(bar, 8 * GIB)


@pytest.mark.parametrize("total", [0, 1, 8 * GIB, 2**62])
@pytest.mark.parametrize("part", [-5, 0, 1, 2**61])
def test_no_figure_breaks_it(total: int, part: int, qtbot: QtBot) -> None:
    bar = MemoryBar("GPU")
    qtbot.addWidget(bar)
    bar.resize(200, 22)
    bar.set_parts([Part("weights", part), Part("other", part)], total)
    bar.grab()
    assert bar.over_bytes >= 0
    assert "nan" not in bar.accessibleDescription().lower()


def test_a_tiny_part_can_still_be_seen() -> None:
    (_, _, width), *_ = layout_parts([Part("compute", 1)], 80 * GIB, 300)
    assert width >= 2


def test_it_is_said_aloud_with_figures(qtbot: QtBot) -> None:
    bar = MemoryBar("Memory of CUDA0")
    qtbot.addWidget(bar)
    bar.set_parts([Part("weights", 5 * GIB), Part("kv", GIB), Part("compute", GIB // 2)], 8 * GIB)
    assert bar.accessibleName() == "Memory of CUDA0"
    said = bar.accessibleDescription()
    for words in ("weights 5.0 GiB", "KV 1.0 GiB", "compute 512 MiB", "1.5 GiB of 8.0 GiB stay free"):
        assert words in said
    assert bar.toolTip() == said


def picture(kind: str, theme: Theme) -> set[int]:
    """The colours in a patch of one kind."""
    image = QImage(40, 20, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    paint_kind(painter, QRectF(0, 0, 40, 20), kind, theme)
    painter.end()
    return {image.pixel(x, y) for x in range(40) for y in range(20)}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_each_kind_has_its_own_hatching(theme: Theme, qapp: object) -> None:
    patterns = {kind: KINDS[kind].pattern for kind in ("weights", "kv", "compute", "other")}
    assert len(set(patterns.values())) == 4
    for kind in ("kv", "compute", "other"):
        assert len(picture(kind, theme)) > 1, f"{kind} shows no hatching"
    assert len(picture("weights", theme)) == 1


def test_hatching_leans_the_way_it_is_called() -> None:
    rising = stripes("kv", QRectF(0, 0, 40, 20))[3]
    falling = stripes("compute", QRectF(0, 0, 40, 20))[3]
    assert rising[0].y() > rising[1].y()
    assert falling[0].y() < falling[1].y()
    assert all(start.x() == end.x() for start, end in stripes("other", QRectF(0, 0, 40, 20)))


def test_the_legend_takes_more_lines_where_it_is_narrow(qtbot: QtBot) -> None:
    legend = MemoryLegend()
    qtbot.addWidget(legend)
    legend.set_entries([("weights", "5.29 + 0.51"), ("kv", "1.13"), ("compute", "0.30"), ("other", "0.41 + 9.90")])
    assert legend.heightForWidth(160) > legend.heightForWidth(900)
    assert "weights 5.29 + 0.51" in legend.accessibleDescription()
    legend.resize(160, legend.heightForWidth(160))
    legend.grab()


def test_figures_have_two_digits_and_are_never_negative() -> None:
    assert gib(round(5.286 * GIB)) == "5.29"
    assert gib(-1) == "0.00"


def test_an_unknown_plan_is_said_to_be_unknown(qtbot: QtBot) -> None:
    chip = FitChip()
    qtbot.addWidget(chip)
    chip.set_chip(chip_for(None))
    assert (chip.text(), chip.property("chip")) == ("unknown", "neutral")
    assert chip.accessibleName() == "Verdict: unknown"
