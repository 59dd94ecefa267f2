"""The controls that ask "what if": context, layers on the GPU, KV cache, chats at once, experts, shares of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop.widgets.controls import Choice, ValueSlider
from desktop.widgets.term import explain
from engine.fit.plan_records import FitPlan, Wishes

_LEAST_CONTEXT = 512
_MOST_CHATS = 8
#: sequences that a load makes room for where nobody asks for another number
DEFAULT_CHATS = 4
#: wishes that these controls stand for
_MOVED_HERE = ("n_ctx", "n_gpu_layers", "n_cpu_moe", "n_slots", "kv_type_k", "kv_type_v", "tensor_split")
KV_TYPES = (("f16", "F16"), ("q8_0", "Q8_0"), ("q4_0", "Q4_0"))


def context_steps(n_ctx_train: int) -> list[int]:
    """Contexts a slider offers: powers of two and their halves between, up to what the model was trained with."""
    most = n_ctx_train if n_ctx_train >= _LEAST_CONTEXT else 8192
    steps = []
    step = _LEAST_CONTEXT
    while step < most:
        steps.append(step)
        if step >= 2048 and step * 3 // 2 < most:
            steps.append(step * 3 // 2)
        step *= 2
    return [*steps, most]


def nearest(steps: Sequence[int], value: int) -> int:
    """Place of the step that is closest to a value."""
    return min(range(len(steps)), key=lambda place: abs(steps[place] - value))


class WhatIf(QWidget):
    """What is not touched follows the plan; what is moved becomes a wish.

    Signals:
        changed(Wishes): a control was moved, or the wishes were dropped.
    """

    changed = Signal(object)

    def __init__(self, *, with_split: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("what_if")
        self._wishes = self._default = Wishes(n_slots=DEFAULT_CHATS)
        self._steps = context_steps(8192)
        self._n_layers = 1
        self._with_split = with_split
        self._devices: tuple[str, ...] = ()
        self.shares: list[ValueSlider] = []
        self._build()

    def _build(self) -> None:
        title = QLabel("What if")
        title.setProperty("role", "section")
        self.source = QLabel()
        self.source.setObjectName("figures_source")
        self.source.setProperty("role", "label")
        self.source.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.source.setWordWrap(True)
        explain(self.source, "dry_run")
        self.reset = QPushButton("Choose for me")
        self.reset.setObjectName("what_if_reset")
        self.reset.setProperty("kind", "link")
        self.reset.setToolTip("Drop what was moved here and let the plan decide again")
        self.reset.setAutoDefault(False)
        self.reset.clicked.connect(self.drop_wishes)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(title)
        head.addWidget(self.reset)
        head.addWidget(self.source, 1)
        self._make_controls()
        self._place(head)
        self.chats.set_range(1, _MOST_CHATS, DEFAULT_CHATS)
        self.experts.hide()
        self.context.moved.connect(lambda at: self._wish(n_ctx=self._steps[at]))
        self.layers.moved.connect(lambda at: self._wish(n_gpu_layers=at))
        self.experts.moved.connect(lambda at: self._wish(n_cpu_moe=at))
        self.chats.moved.connect(lambda at: self._wish(n_slots=at))
        self.kv.chosen.connect(lambda kind: self._wish(kv_type_k=kind, kv_type_v=kind))

    def _make_controls(self) -> None:
        self.context = ValueSlider(
            "what_if_context",
            "Context",
            "Context window (n_ctx): how many tokens the model can see at once",
            lambda at: f"{self._steps[min(at, len(self._steps) - 1)]:,} tokens",
            term="context_window",
        )
        self.layers = ValueSlider(
            "what_if_layers",
            "Layers on GPU",
            "How many layers are computed on the GPU (n_gpu_layers); the CPU computes the others, more slowly",
            lambda at: f"{at} of {self._n_layers}",
            term="offload",
        )
        self.experts = ValueSlider(
            "what_if_experts",
            "Experts on CPU",
            "Of how many layers the experts stay in main memory; each token needs only a few of them",
            lambda at: f"of {at} layers" if at else "none",
            term="cpu_moe",
        )
        self.chats = ValueSlider(
            "what_if_chats",
            "Chats at once",
            "How many answers can be written at the same time (slots); they share the context",
            str,
            term="slot",
        )
        self.kv_label = QLabel("KV cache")
        self.kv_label.setProperty("role", "secondary")
        tip = "How exactly the KV cache is kept: Q8_0 takes about half of F16 with hardly any loss, Q4_0 a quarter"
        explain(self.kv_label, "kv_type", tip)
        self.kv = Choice("what_if_kv", "KV cache", tip, KV_TYPES, term="kv_type")

    def _place(self, head: QHBoxLayout) -> None:
        kv_box = QVBoxLayout()
        kv_box.setSpacing(4)
        kv_box.addWidget(self.kv_label)
        kv_box.addWidget(self.kv)
        pair = QGridLayout()
        pair.setHorizontalSpacing(24)
        pair.addLayout(kv_box, 0, 0)
        pair.addWidget(self.chats, 0, 1, Qt.AlignmentFlag.AlignTop)
        pair.setColumnStretch(0, 1)
        pair.setColumnStretch(1, 1)
        self._shares_box = QVBoxLayout()
        self._shares_box.setSpacing(8)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(10)
        box.addLayout(head)
        for slider in (self.context, self.layers, self.experts):
            box.addWidget(slider)
        box.addLayout(pair)
        box.addLayout(self._shares_box)
        box.addStretch(1)

    # ---- content

    def apply_scale(self, scale: float) -> None:
        for slider in (self.context, self.layers, self.experts, self.chats, *self.shares):
            slider.apply_scale(scale)

    @property
    def wishes(self) -> Wishes:
        return self._wishes

    @property
    def has_wishes(self) -> bool:
        """Something that these controls move was moved."""
        return any(getattr(self._wishes, name) != getattr(self._default, name) for name in _MOVED_HERE)

    def set_model(
        self,
        n_ctx_train: int,
        n_layers: int,
        n_expert_layers: int,
        devices: Sequence[str],
        default: Wishes | None = None,
    ) -> None:
        """Another model: limits of its controls, and no wishes.

        Args:
            n_layers: with the output layer. n_expert_layers: layers with experts; 0: not a mixture of experts.
            devices: names of the GPUs there are.
            default: what holds where nothing is moved.
        """
        self._wishes = self._default = default or Wishes(n_slots=DEFAULT_CHATS)
        self._steps = context_steps(n_ctx_train)
        self._n_layers = max(1, n_layers)
        self.context.set_range(0, len(self._steps) - 1, nearest(self._steps, 8192))
        self.layers.setVisible(bool(devices))
        self.layers.set_range(0, self._n_layers, self._n_layers)
        self.experts.setVisible(bool(devices) and n_expert_layers > 0)
        self.experts.set_range(0, max(0, n_expert_layers), 0)
        self._set_devices(tuple(devices) if self._with_split and len(devices) > 1 else ())
        self.set_wishes(self._wishes)

    def set_wishes(self, wishes: Wishes) -> None:
        """Show these; tells nobody. What is left open is put in its place by the next plan."""
        self._wishes = wishes
        if wishes.n_ctx is not None:
            self.context.set_position(nearest(self._steps, wishes.n_ctx))
        if wishes.n_gpu_layers is not None:
            self.layers.set_position(wishes.n_gpu_layers if wishes.n_gpu_layers >= 0 else self._n_layers)
        if wishes.n_cpu_moe is not None:
            self.experts.set_position(wishes.n_cpu_moe)
        self.chats.set_position(wishes.n_slots)
        if len(wishes.tensor_split) == len(self.shares) and any(wishes.tensor_split):
            whole = sum(wishes.tensor_split)
            for slider, part in zip(self.shares, wishes.tensor_split, strict=True):
                slider.set_position(round(100 * part / whole))
        self.reset.setVisible(self.has_wishes)

    def _set_devices(self, devices: tuple[str, ...]) -> None:
        if devices == self._devices:
            return
        self._devices = devices
        for slider in self.shares:
            self._shares_box.removeWidget(slider)
            slider.hide()
            slider.deleteLater()
        self.shares = []
        for place, name in enumerate(devices):
            slider = ValueSlider(
                f"what_if_share_{place}",
                f"Share of {name}",
                f"How many of the layers on GPUs go to {name} (tensor_split), beside the shares of the others",
                self._share_words,
                term="tensor_split",
            )
            slider.set_range(0, 100, round(100 / len(devices)))
            slider.moved.connect(self._on_share)
            self._shares_box.addWidget(slider)
            self.shares.append(slider)

    def _share_words(self, at: int) -> str:
        whole = sum(slider.position for slider in self.shares) or at
        return f"{at / whole:.0%}" if whole else "none"

    def _on_share(self, _: int) -> None:
        parts = tuple(float(slider.position) for slider in self.shares)
        self._wish(tensor_split=parts if sum(parts) else ())

    def show_plan(self, plan: FitPlan) -> None:
        """Put what was not moved where the plan has it."""
        wishes, options = self._wishes, plan.options
        if wishes.n_ctx is None:
            self.context.set_position(nearest(self._steps, plan.needs.n_ctx))
        if wishes.n_gpu_layers is None:
            self.layers.set_position(plan.needs.n_gpu_layers)
        if wishes.n_cpu_moe is None:
            self.experts.set_position(options.n_cpu_moe)
        if options.kv_type_k == options.kv_type_v and options.kv_type_k in dict(KV_TYPES):
            self.kv.set_value(options.kv_type_k)
        else:  # chosen elsewhere
            self.kv.clear()
        if not wishes.tensor_split and len(plan.devices) == len(self.shares):
            parts = options.tensor_split or tuple(float(fit.free_bytes) for fit in plan.devices)
            whole = sum(parts) or 1.0
            for slider, part in zip(self.shares, parts, strict=False):
                slider.set_position(round(100 * part / whole))
        for slider in self.shares:  # each share's words depend on the others
            slider.set_position(slider.position)

    def drop_wishes(self) -> None:
        """As if nothing had been moved here."""
        dropped = {name: getattr(self._default, name) for name in _MOVED_HERE}
        self.set_wishes(replace(self._wishes, **dropped))
        self.changed.emit(self._wishes)

    def _wish(self, **values: object) -> None:
        self._wishes = replace(self._wishes, **values)  # type: ignore[arg-type]
        self.reset.setVisible(self.has_wishes)
        self.changed.emit(self._wishes)
