"""What measurements of models found, kept in the profile: one JSON file, written atomically, bounded.

Losing it costs old figures and nothing else, so a damaged file is started anew.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from engine import log
from engine.errors import StorageFailed
from engine.newer import is_newer
from engine.paths import atomic_write, make_private_folder, shown

SCHEMA = 1
#: results kept of one model with the same settings, and of all together; the oldest go first
KEPT_EACH, KEPT_ALL = 20, 200
_log = log.get("bench")


class Spread(msgspec.Struct, frozen=True):
    """Tokens a second: the median of all runs, the lowest and the highest."""

    median: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Highest minus lowest as a share of the median."""
        return (self.high - self.low) / self.median if self.median > 0 else 0.0


class BenchRow(msgspec.Struct, frozen=True):
    """Figures of `parallel` answers at once, totals of all of them.

    Attributes:
        prefill, decode: in the model process alone. session: answers through protocol and chat, as the window gets
            them; None where they came too fast to tell.
    """

    parallel: int
    prefill: Spread
    decode: Spread
    session: Spread | None = None


class BenchResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement of one model.

    Attributes:
        model, quantization, path: which. load: fields of the load that the user had chosen.
        n_prompt, n_generate, n_runs: tokens of a prompt and of an answer, and how often each row was measured.
        llama_cpp: version of the build. n_threads, n_gpu_layers, flash_attention: as they were in the end.
        time_s: when, seconds since the epoch.
    """

    model: str
    path: str
    quantization: str
    n_prompt: int
    n_generate: int
    n_runs: int
    llama_cpp: str
    n_threads: int
    n_gpu_layers: int
    rows: tuple[BenchRow, ...]
    flash_attention: str = ""
    load: dict[str, Any] = {}
    time_s: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """The same for results that can be compared over time: one model, the same settings.

        The version of llama.cpp is no part of it: what a newer one changes is what the history is looked at for.
        """
        load = tuple(sorted((name, repr(value)) for name, value in self.load.items()))
        name = PurePath(self.path.replace("\\", "/")).name
        return (self.model, name, self.n_prompt, self.n_generate, self.n_threads, self.n_gpu_layers, load)


class _File(msgspec.Struct):
    schema: int = SCHEMA
    results: list[BenchResult] = []


class BenchHistory:
    """The results of a profile, oldest first. Safe from any thread; every call reads the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_newer = False

    def results(self) -> list[BenchResult]:
        with self._lock:
            return self._read()

    def add(self, result: BenchResult) -> None:
        """Keep a result; old ones of the same kind, and the oldest of all, give way.

        Raises:
            StorageFailed, DiskFull
        """
        with self._lock:
            # by time: a removed one that is put back finds its place
            results = sorted([*self._read(), result], key=lambda one: one.time_s)
            same = [one for one in results if one.key == result.key]
            for old in same[:-KEPT_EACH]:
                results.remove(old)
            self._write(results[-KEPT_ALL:])

    def remove(self, result: BenchResult) -> None:
        """Raises:
        StorageFailed, DiskFull
        """
        with self._lock:
            self._write([one for one in self._read() if one != result])

    def _read(self) -> list[BenchResult]:
        self._is_newer = False
        try:
            raw = self._path.read_bytes()
            self._is_newer = is_newer(raw, SCHEMA)
            if self._is_newer:
                return []
            found = msgspec.json.decode(raw, type=_File)
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("earlier measurements cannot be read and start anew (%s)", type(error).__name__)
            return []
        return found.results if found.schema == SCHEMA else []

    def _write(self, results: Sequence[BenchResult]) -> None:
        if self._is_newer:
            raise StorageFailed(
                "Measurements cannot be kept: a newer Inglenook has written those of this profile",
                hint="Update Inglenook. The file was not changed.",
                details={"path": shown(self._path)},
            )
        make_private_folder(self._path.parent)
        atomic_write(self._path, msgspec.json.format(msgspec.json.encode(_File(results=list(results)))))


def history_file(data: Path) -> Path:
    """Where a profile keeps it, by its data folder."""
    return data / "bench.json"


def table_words(result: BenchResult) -> str:
    """The whole result as plain text: what was measured, then a table."""
    head = [
        f"{result.model} {result.quantization}".strip(),
        *where_words(result),
        f"llama.cpp {result.llama_cpp}",
    ]
    runs = "1 run" if result.n_runs == 1 else f"medians of {result.n_runs} runs"
    what = f"prompts of {result.n_prompt} tokens, answers of {result.n_generate}; tokens a second of all, {runs}"
    cells = [("at once", "prompt", "answer", "answer in a chat")]
    cells += [
        (str(row.parallel), spread_words(row.prefill), spread_words(row.decode), spread_words(row.session))
        for row in result.rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join((" · ".join(head), what, "", *lines))


def where_words(result: BenchResult) -> tuple[str, ...]:
    """Threads, and layers on the GPU if there are any."""
    threads, layers = result.n_threads, result.n_gpu_layers
    words = ["1 thread" if threads == 1 else f"{threads} threads"]
    if layers:
        words.append("1 layer on the GPU" if layers == 1 else f"{layers} layers on the GPU")
    return tuple(words)


def spread_words(found: Spread | None) -> str:
    """As "118.2 (116.9–119.0)"; a dash for none."""
    if found is None:
        return "–"
    if found.low == found.high:
        return f"{found.median:.1f}"
    return f"{found.median:.1f} ({found.low:.1f}–{found.high:.1f})"
