"""Lines of the monitor on this computer: processes, processor, main memory, devices."""

from __future__ import annotations

from desktop import figures
from desktop.views.monitor.feed import MonitorFeed
from desktop.views.monitor.lines import DASH, exact, percent
from desktop.views.monitor.places import OLD_S
from desktop.views.monitor.rows import Row
from engine.events import GpuFigures, ProcessFigures


def machine_rows(feed: MonitorFeed, *, full: bool) -> list[Row]:
    sample, age = feed.sample, feed.sample_age_s
    if sample is None:
        return [
            Row("Machine", "", "Not looked at yet", kind="head"),
            Row("RAM, window + worker", DASH, "Not looked at yet"),
        ]
    old = age is not None and age > OLD_S
    tone = "old" if old else ""
    state = f"{age:.0f} s old" if old and age is not None else ""
    rows = [Row("Machine", state, "These figures are no longer new" if old else "", kind="head")]
    rows += _process_rows(sample.window, sample.worker, feed.model is not None, tone, full=full)
    rows.append(_cpu_row(sample.cpu_percent, sample.n_cores, tone))
    if full:
        rows.append(_ram_row(sample.ram_total_bytes, sample.ram_available_bytes, sample.ram_limited_by, tone))
    rows += gpu_rows(feed, full=full)
    return rows


def _process_rows(
    window: ProcessFigures | None, worker: ProcessFigures | None, loaded: bool, tone: str, *, full: bool
) -> list[Row]:
    if not full:
        known = [p.rss_bytes for p in (window, worker) if p is not None and p.rss_bytes is not None]
        tip = f"window: {_process_tip(window)}\nworker: {_process_tip(worker)}"
        return [Row("RAM, window + worker", figures.size(sum(known)) if known else DASH, tip, "rss", tone)]
    rows = []
    for name, figures_ in (("Window", window), ("Worker", worker)):
        why = (
            "" if figures_ is not None else ("There is no model's process" if not loaded else "It cannot be looked at")
        )
        p = figures_ or ProcessFigures()
        rows += [
            Row(f"{name}, resident", figures.size(p.rss_bytes), why or exact(p.rss_bytes), "rss", tone),
            Row(
                f"{name}, private", figures.size(p.private_bytes), why or exact(p.private_bytes), "private_memory", tone
            ),
            Row(f"{name}, mapped files", figures.size(p.mapped_bytes), why or exact(p.mapped_bytes), "mmap", tone),
            Row(
                f"{name}, processor",
                _cores(p.cpu_percent),
                why or "Of one core, since the look before",
                "threads",
                tone,
            ),
        ]
    return rows


def _process_tip(process: ProcessFigures | None) -> str:
    if process is None:
        return "no process"
    private, mapped = figures.size(process.private_bytes), figures.size(process.mapped_bytes)
    return f"{figures.size(process.rss_bytes)} resident, of it {private} private, {mapped} of mapped files"


def _cores(value: float | None) -> str:
    return DASH if value is None else f"{value / 100:.2f} cores"


def _cpu_row(value: float | None, n_cores: int, tone: str) -> Row:
    tip = f"All {n_cores} logical processors together, by all programs" if value is not None else "It takes two looks"
    return Row("CPU", percent(value), tip, "threads", tone)


def _ram_row(total: int | None, available: int | None, limited_by: str, tone: str) -> Row:
    if total is None or available is None:
        return Row("RAM in use", DASH, "The system does not tell", "ram", tone)
    limit = f"; limited by its {limited_by}" if limited_by else ""
    tip = f"{exact(total - available)} of {exact(total)} by all programs{limit}"
    return Row("RAM in use", f"{figures.size(max(0, total - available))} of {figures.size(total)}", tip, "ram", tone)


def gpu_rows(feed: MonitorFeed, *, full: bool) -> list[Row]:
    """One line for each device beside the chat, all that the driver tells on the full page."""
    assert feed.sample is not None
    state = feed.sample.gpus
    old = state.state != "ok" or (state.age_s or 0) > OLD_S
    rows = []
    if state.state != "ok":
        rows.append(Row("GPU", _short(state.state), state.text, "gpu_load", "warn" if state.devices else "old"))
    for gpu in state.devices:
        tone = "old" if old or gpu.gone else ""
        name = "GPU" if len(state.devices) == 1 else f"GPU {gpu.index}"
        tip = gpu.name
        if gpu.gone:
            tip = f"{gpu.name} does not answer any more"
        elif old and state.age_s is not None:
            tip = f"{gpu.name}: these figures are {state.age_s:.0f} s old. {state.text}"
        if full:
            age = f"{state.age_s:.0f} s old" if old and state.age_s is not None else ""
            rows += _gpu_details(gpu, tip, tone, "lost" if gpu.gone else age)
        elif not (state.state != "ok" and old):
            rows.append(Row(name, _gpu_words(gpu), tip, "gpu_load", tone))
    return rows


def _short(state: str) -> str:
    return {
        "unknown": DASH,
        "no_package": "not watched",
        "no_library": "no NVIDIA GPU",
        "no_devices": "no NVIDIA GPU",
        "no_driver": "driver not loaded",
        "version_mismatch": "driver mismatch",
        "no_permission": "no permission",
        "gpu_lost": "lost",
        "timeout": "driver hangs",
    }.get(state, "unavailable")


def _gpu_words(gpu: GpuFigures) -> str:
    if gpu.gone:
        return "lost"
    parts = []
    if gpu.load_percent is not None:
        parts.append(f"{gpu.load_percent} %")
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c} °C")
    if gpu.power_w is not None:
        parts.append(f"{gpu.power_w:.0f} W")
    return " · ".join(parts) or DASH


def _gpu_details(gpu: GpuFigures, tip: str, tone: str, state: str) -> list[Row]:
    silent = "The driver does not tell"

    def row(label: str, value: str | None, term: str) -> Row:
        return Row(label, DASH if value is None else value, tip if value is not None else silent, term, tone)

    def with_unit(value: float | None, unit: str) -> str | None:
        return None if value is None else f"{value:,.0f} {unit}"

    power = with_unit(gpu.power_w, "W")
    if power is not None and gpu.power_limit_w is not None:
        power = f"{gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W"
    clocks = with_unit(gpu.clock_mhz, "MHz")
    if clocks is not None and gpu.memory_clock_mhz is not None:
        clocks += f", memory {gpu.memory_clock_mhz:,} MHz"
    memory = None
    if gpu.used_bytes is not None and gpu.total_bytes is not None:
        memory = f"{figures.size(gpu.used_bytes)} of {figures.size(gpu.total_bytes)}"
    ours = figures.size(gpu.worker_bytes) if gpu.worker_bytes is not None else None
    return [
        Row(gpu.name, state, tip, kind="head", tone=tone),
        row("Load", with_unit(gpu.load_percent, "%"), "gpu_load"),
        row("Memory, all programs", memory, "vram"),
        row("Memory, worker", ours, "vram"),
        row("Clocks", clocks, "clock_and_power"),
        row("Temperature", with_unit(gpu.temperature_c, "°C"), "clock_and_power"),
        row("Power", power, "clock_and_power"),
    ]
