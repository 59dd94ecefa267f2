"""Measuring this computer by the user's wish, beside chats and a loaded model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from engine import log
from engine.errors import Busy
from engine.fit import calibrate
from engine.fit.calibrate import Calibration
from engine.fit.measured import Measurements
from engine.models import starter

_log = log.get("fit")


class Calibrator:
    """One calibration at a time. Never begins by itself."""

    def __init__(
        self, measurements: Measurements, models: Path, writing: Callable[[], bool], command: Sequence[str] | None
    ) -> None:
        """`models`: where a starter model may be too. `writing`: a model is loading or at work."""
        self._measurements, self._models = measurements, models
        self._writing, self._command = writing, command
        self._lock = threading.Lock()
        self._running = False

    def begin(self, progress: Callable[[str], None]) -> Future[Calibration]:
        """About ten seconds on a thread of its own; `progress` is called there.

        Raises:
            Busy: a model is loading or writing, which would spoil both; or this runs already.
        """
        if self._writing():
            raise Busy("A model is at work, so nothing can be measured now", hint="Wait for its end, then try again.")
        with self._lock:
            if self._running:
                raise Busy("This machine is being measured already")
            self._running = True
        result: Future[Calibration] = Future()
        # a daemon: the end of the program does not wait for it, and its processes end with their pipes
        threading.Thread(target=self._run, args=(result, progress), name="calibration", daemon=True).start()
        return result

    def _run(self, result: Future[Calibration], progress: Callable[[str], None]) -> None:
        try:
            model = starter.find(self._models)
            found = calibrate.calibrate(self._measurements, model, command=self._command, progress=progress)
            if model is None:
                text = "There is no starter model, so only the memory was measured."
                found = replace(found, problems=(*found.problems, text))
            elif self._writing():
                text = "A model was at work meanwhile, so the figures may be too low; measure again."
                found = replace(found, problems=(*found.problems, text))
        except Exception as error:
            _log.exception("the calibration failed")
            self._end()
            result.set_exception(error)
        else:
            self._end()
            result.set_result(found)

    def _end(self) -> None:
        with self._lock:
            self._running = False
