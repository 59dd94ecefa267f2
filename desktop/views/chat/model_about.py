"""What the list of models says of the loaded one."""

from __future__ import annotations

from pathlib import Path

from desktop import figures
from desktop.errors import describe
from engine import backend_words
from engine.events import ModelState


def about(state: ModelState) -> str:
    """The lines under its name."""
    if state.status == "failed" and state.error is not None:
        words = describe(state.error)
        return "\n".join(part for part in (words.text, words.hint) if part)
    if state.status != "ready" or state.model is None:
        return Path(state.path).name if state.status == "loading" else ""
    model = state.model
    size, load_time = figures.size(model.size_bytes), figures.seconds(model.load_s)
    lines = [
        f"{model.quantization} · {size} of weights · loaded in {load_time}",
        f"context {model.n_ctx:,} of {model.n_ctx_train:,} trained",
    ]
    if model.cpu_module or model.add_ons:
        lines.append(f"computes on {backend_words.summary(model.cpu_module, model.add_ons)}")
    if model.template.note:
        lines.append(model.template.note)
    lines.extend(model.warnings)
    return "\n".join(lines)
