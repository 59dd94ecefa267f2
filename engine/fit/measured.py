"""What real loads and answers took, kept in the profile, to correct the next estimates.

One JSON file, written atomically. Losing it costs accuracy and nothing else, so a damaged file is started anew.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import msgspec

from engine import log
from engine.errors import EngineError
from engine.fit.plan_records import Measured
from engine.fit.speed import HOST_KEY, Ratios
from engine.newer import is_newer
from engine.paths import atomic_write

SCHEMA = 1
#: results that are kept for each place and kind
_KEPT = 20
#: beyond this a ratio is a fault of measuring
_RATIO = (0.05, 20.0)
#: no correction may take more from the room than this
_MOST_CORRECTION = 2 * 2**30
_log = log.get("fit")


class SpeedResult(msgspec.Struct, frozen=True):
    """One real answer. place, quantization: as `speed.place_key` and `speed.dominant_type` name them."""

    place: str
    quantization: str
    predicted_tps: float
    measured_tps: float
    time_s: float = 0.0


class MemoryResult(msgspec.Struct, frozen=True):
    """One real load on one device: llama.cpp's own categories, predicted and measured."""

    device: str
    model: str
    predicted_bytes: int
    measured_bytes: int
    time_s: float = 0.0


class _File(msgspec.Struct):
    schema: int = SCHEMA
    speeds: list[SpeedResult] = []
    memory: list[MemoryResult] = []
    bandwidths: dict[str, float] = {}
    rates: dict[str, float] = {}
    layer_s: float = 0.0
    calibrated_s: float = 0.0


class Measurements:
    """The results of this profile. Safe from any thread; reading costs no disk access after the first time."""

    def __init__(self, path: Path | None) -> None:
        """`path` None: nothing is kept on disk."""
        self._path = path
        self._lock = threading.Lock()
        self._loaded: _File | None = None if path else _File()

    @property
    def _data(self) -> _File:
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    def _read(self) -> _File:
        assert self._path is not None
        try:
            raw = self._path.read_bytes()
            if is_newer(raw, SCHEMA):
                self._path = None  # left as it is: a newer program has it; what comes now is kept in memory
                return _File()
            found = msgspec.json.decode(raw, type=_File)
        except FileNotFoundError:
            return _File()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("measurements of the fit cannot be read and start anew (%s)", type(error).__name__)
            return _File()
        return found if found.schema == SCHEMA else _File()

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._path, msgspec.json.format(msgspec.json.encode(self._data)))
        except (EngineError, OSError) as error:
            _log.warning("measurements of the fit cannot be written: %s", error)

    # -------------------------------------------------------------- speed

    def add_speed(self, place: str, quantization: str, predicted_tps: float, measured_tps: float) -> None:
        """Keep the speed of one real answer; what cannot be right is left out."""
        if predicted_tps <= 0 or measured_tps <= 0 or not _RATIO[0] <= measured_tps / predicted_tps <= _RATIO[1]:
            return
        with self._lock:
            speeds = self._data.speeds
            speeds.append(SpeedResult(place, quantization, predicted_tps, measured_tps, time.time()))
            same = [one for one in speeds if (one.place, one.quantization) == (place, quantization)]
            for old in same[:-_KEPT]:
                speeds.remove(old)
            self._save()

    def ratios(self) -> Ratios:
        """Median of measured over predicted, by place and quantization."""
        with self._lock:
            groups: dict[tuple[str, str], list[float]] = {}
            for one in self._data.speeds:
                if one.predicted_tps > 0:
                    groups.setdefault((one.place, one.quantization), []).append(one.measured_tps / one.predicted_tps)
        return Ratios({key: median(values) for key, values in groups.items()})

    # -------------------------------------------------------------- memory

    def add_memory(self, device: str, model: str, predicted_bytes: int, measured_bytes: int) -> None:
        with self._lock:
            memory = self._data.memory
            memory.append(MemoryResult(device, model, predicted_bytes, measured_bytes, time.time()))
            same = [one for one in memory if one.device == device]
            for old in same[:-_KEPT]:
                memory.remove(old)
            self._save()

    def memory(self) -> tuple[MemoryResult, ...]:
        with self._lock:
            return tuple(self._data.memory)

    def corrections(self) -> dict[str, int]:
        """Bytes to add to a prediction by device: the median of what real loads took beyond it. Never negative: a
        prediction that is too high only leaves room."""
        with self._lock:
            groups: dict[str, list[int]] = {}
            for one in self._data.memory:
                groups.setdefault(one.device, []).append(one.measured_bytes - one.predicted_bytes)
        found = {device: int(median(values)) for device, values in groups.items()}
        return {device: min(size, _MOST_CORRECTION) for device, size in found.items() if size > 0}

    # -------------------------------------------------------------- the computer

    def set_machine(self, found: Measured) -> None:
        """Keep what a calibration found; a part that it could not measure stays as it was.

        Answers on the processor were judged against other figures before, so their ratios begin anew.
        """
        with self._lock:
            data = self._data
            data.bandwidths.update({name: value for name, value in found.bandwidths.items() if value > 0})
            if found.rates:
                data.rates = {name: value for name, value in found.rates.items() if value > 0}
                data.speeds = [one for one in data.speeds if HOST_KEY not in one.place.split("+")]
            data.layer_s = found.layer_s if found.layer_s > 0 else data.layer_s
            data.calibrated_s = time.time()
            self._save()

    def machine(self) -> Measured:
        """What is known of this computer from its last calibration."""
        with self._lock:
            return Measured(dict(self._data.bandwidths), dict(self._data.rates), max(0.0, self._data.layer_s))

    @property
    def calibrated(self) -> bool:
        """A calibration was made on this machine."""
        with self._lock:
            return self._data.calibrated_s > 0

    def forget(self) -> None:
        """Start anew, for instance with other hardware."""
        with self._lock:
            self._loaded = _File()
            if self._path is not None:
                with suppress(OSError):
                    self._path.unlink()
