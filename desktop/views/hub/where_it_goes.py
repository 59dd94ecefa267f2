"""Where a model goes: a bar of memory for each device and for main memory, a legend, the verdict in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from desktop import figures
from desktop.theme import LIGHT, Theme
from desktop.widgets.fit_chip import FitChip, chip_for
from desktop.widgets.memory_bar import MemoryBar, MemoryLegend, Part, gib
from desktop.widgets.term import explain

if TYPE_CHECKING:
    from engine.fit.plan_records import DeviceFit, FitPlan

_OURS = ("weights", "kv", "compute")


def parts_of(fit: DeviceFit) -> list[Part]:
    """The stretches of one device: the model's own, then what other programs hold."""
    need = fit.need
    return [
        Part("weights", need.weights_bytes),
        Part("kv", need.kv_bytes),
        Part("compute", need.compute_bytes + need.overhead_bytes),
        Part("other", max(0, fit.total_bytes - fit.free_bytes)),
    ]


def caption_of(fit: DeviceFit, name: str) -> str:
    """Above a bar: "RTX 4070 · 7.02 of 8.00 GiB"."""
    used = sum(part.n_bytes for part in parts_of(fit))
    words = f"{name} · {gib(used)} of {gib(fit.total_bytes)} GiB"
    if fit.over_bytes:
        words += f" · {figures.size(fit.over_bytes)} too much"
    return words


def legend_of(plan: FitPlan) -> list[tuple[str, str]]:
    """Figures of each kind in GiB: on the devices one by one, then in main memory."""
    places = [*plan.devices, plan.host]
    entries = []
    for kind in (*_OURS, "other"):
        sums = [next(part.n_bytes for part in parts_of(fit) if part.kind == kind) for fit in places]
        if any(sums):
            entries.append((kind, " + ".join(gib(n) for n in sums)))
    free = [fit.total_bytes - sum(part.n_bytes for part in parts_of(fit)) for fit in places]
    entries.append(("free", " + ".join(gib(max(0, n)) for n in free)))
    return entries


class _Device(QWidget):
    """Caption and bar of one device."""

    def __init__(self) -> None:
        super().__init__()
        self.caption = QLabel()
        self.caption.setProperty("role", "label")
        self.caption.setTextFormat(Qt.TextFormat.PlainText)
        self.bar = MemoryBar()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addWidget(self.caption)
        box.addWidget(self.bar)

    def show_fit(self, fit: DeviceFit, name: str) -> None:
        self.caption.setText(caption_of(fit, name))
        role = "bad" if fit.over_bytes else "label"
        if self.caption.property("role") != role:
            self.caption.setProperty("role", role)
            self.caption.style().unpolish(self.caption)
            self.caption.style().polish(self.caption)
        self.bar.setAccessibleName(f"Memory of {name}")
        self.bar.set_parts(parts_of(fit), fit.total_bytes)


class WhereItGoes(QWidget):
    """Bars of a plan."""

    def __init__(self, title: str = "Where it goes", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("where_it_goes")
        self._theme = LIGHT
        self._scale = 1.0
        self._plan: FitPlan | None = None
        heading = QLabel(title)
        heading.setProperty("role", "section")
        self.chip = FitChip()
        self.chip.setObjectName("fit_verdict")
        explain(self.chip, "fit_plan", "")
        top = QHBoxLayout()
        top.addWidget(heading)
        top.addStretch(1)
        top.addWidget(self.chip)
        self._devices: list[_Device] = []
        self._bars = QVBoxLayout()
        self._bars.setSpacing(8)
        self.legend = MemoryLegend()
        self.words = QLabel()
        self.words.setObjectName("fit_words")
        self.words.setProperty("role", "small")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        explain(self.words, "fit_plan")
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addLayout(top)
        box.addLayout(self._bars)
        box.addWidget(self.legend)
        box.addWidget(self.words)
        box.addStretch(1)

    @property
    def plan(self) -> FitPlan | None:
        return self._plan

    @property
    def bars(self) -> list[MemoryBar]:
        """One for each device, the last for main memory."""
        return [device.bar for device in self._devices if device.isVisibleTo(self)]

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        for device in self._devices:
            device.bar.apply_theme(theme)
        self.legend.apply_theme(theme, scale)

    def show_plan(self, plan: FitPlan) -> None:
        self._plan = plan
        places = [(fit, fit.label) for fit in plan.devices] + [(plan.host, "RAM")]
        while len(self._devices) < len(places):
            device = _Device()
            device.bar.apply_theme(self._theme)
            self._devices.append(device)
            self._bars.addWidget(device)
        for device, place in zip(self._devices, places, strict=False):
            device.show_fit(*place)
        for number, device in enumerate(self._devices):
            device.setVisible(number < len(places))
        self.legend.set_entries(legend_of(plan))
        self.chip.set_chip(chip_for(plan, long=True))
        self.words.setText(words_of(plan))
        self.words.setVisible(bool(self.words.text()))


def words_of(plan: FitPlan) -> str:
    """The verdict in a few sentences, the most important first."""
    sentences = [*plan.reasons[:2], *plan.warnings]
    if plan.speed.decode_tps_high > 0:
        basis = "corrected by answers on this computer" if plan.speed.basis == "calibrated" else "an estimate"
        sentences.append(f"About {speed_words(plan)}, {basis}.".replace("tok/s", "tok/\u2060s"))
    return " ".join(sentences)


def speed_words(plan: FitPlan) -> str:
    """ "44–52 tok/s"; a dash where it cannot be told."""
    low, high = plan.speed.decode_tps_low, plan.speed.decode_tps_high
    if high <= 0:
        return figures.DASH

    def number(value: float) -> str:
        return f"{value:.1f}" if value < 10 else f"{value:.0f}"

    if number(low) == number(high):
        return f"{number(low)} tok/s"
    return f"{number(low)}–{number(high)} tok/s"
