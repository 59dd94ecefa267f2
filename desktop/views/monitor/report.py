"""The monitor as text: a table for a spreadsheet, and all that is on screen in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from desktop import figures
from desktop.views.monitor import lines, machine_lines
from desktop.views.monitor.cache_map import runs_of
from desktop.views.monitor.feed import Look, MonitorFeed
from desktop.views.monitor.places import places_of
from desktop.views.monitor.rows import Row
from desktop.widgets.memory_bar import Part, words_of
from engine.events import GpuFigures

_COLUMNS = (
    "time_s",
    "decode_tok_s",
    "prefill_tok_s",
    "kv_used_cells",
    "n_ctx",
    "window_rss_bytes",
    "worker_rss_bytes",
    "worker_private_bytes",
    "worker_mapped_bytes",
    "worker_cpu_percent_of_a_core",
    "cpu_percent",
    "ram_available_bytes",
)
_GPU_COLUMNS = ("load_percent", "used_bytes", "total_bytes", "worker_bytes", "clock_mhz", "temperature_c", "power_w")


def csv_text(looks: Sequence[Look]) -> str:
    """A line for each look at the computer, times from the first one on; a field is empty where nothing is known."""
    n_gpus = max((len(look.sample.gpus.devices) for look in looks), default=0)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"gpu{i}_{name}" for i in range(n_gpus) for name in _GPU_COLUMNS)])
    for look in looks:
        writer.writerow(_fields(look, looks[0].sample.time_s, n_gpus))
    return file.getvalue()


def _fields(look: Look, start_s: float, n_gpus: int) -> list[object]:
    sample = look.sample
    window, worker = sample.window, sample.worker
    row: list[object] = [
        f"{sample.time_s - start_s:.2f}",
        _number(look.decode),
        _number(look.prefill),
        look.kv_used,
        look.n_ctx,
        window.rss_bytes if window is not None else None,
        worker.rss_bytes if worker is not None else None,
        worker.private_bytes if worker is not None else None,
        worker.mapped_bytes if worker is not None else None,
        _number(worker.cpu_percent if worker is not None else None),
        _number(sample.cpu_percent),
        sample.ram_available_bytes,
    ]
    # old figures of a driver that does not answer are no measurement of this time
    devices = sample.gpus.devices if sample.gpus.state == "ok" else ()
    for index in range(n_gpus):
        gpu = devices[index] if index < len(devices) else GpuFigures(index, "")
        row += [getattr(gpu, name) for name in _GPU_COLUMNS]
    return row


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def words(feed: MonitorFeed, titles: dict[int, str]) -> str:
    """All that the page shows, line by line, unknown figures with the reason."""
    rate, state = lines.main_rate(feed)
    parts: list[str] = [f"SPEED ({state})", f"Decode: {figures.rate(rate)} tokens a second"]
    parts += _said(lines.speed_rows(feed, full=True))
    parts += ["", *_said([lines.cache_head(feed)])]
    if feed.kv is not None:
        parts += [f"  {run.words}" for run in runs_of(feed.kv, feed.on_screen(), titles)]
    parts += _said(lines.cache_rows(feed, full=True))
    places = places_of(feed.model, feed.sample, feed.sample_age_s)
    parts += ["", *_said([lines.memory_head(feed, places)])]
    for place in places:
        parts += _said([lines.place_head(place)])
        for name, kinds, row in (
            ("predicted", place.predicted, lines.predicted_caption(place)),
            ("measured", place.measured, lines.measured_caption(place)),
        ):
            if kinds:
                said = words_of([Part(kind, n) for kind, n in kinds], place.total_bytes)
                parts.append(f"  {name} {row.value}: {said}")
    parts += ["", *_said(machine_lines.machine_rows(feed, full=True))]
    return "\n".join(parts)


def _said(rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        reason = f" ({row.tip})" if row.value == figures.DASH and row.tip else ""
        found.append(f"{'' if row.kind == 'head' else '  '}{row.words}{reason}")
    return found
