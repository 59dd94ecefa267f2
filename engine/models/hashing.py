"""SHA-256 and copies of large files, with progress, and stoppable at any moment."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import BinaryIO

from engine.errors import Cancelled, ModelNotFound
from engine.models.not_gguf import shown
from engine.paths import storage_error

#: called with (bytes done, bytes in all), at most ten times a second and at the end
Progress = Callable[[int, int], None]
_PIECE = 4 << 20
_REPORT_S = 0.1


class Meter:
    """Counts bytes of one or more files and passes them on, but not too often.

    Attributes:
        stop: set by whoever wants the work to end; the next piece then raises `Cancelled`.
    """

    def __init__(self, total_bytes: int, progress: Progress | None = None, stop: Event | None = None) -> None:
        self.total_bytes, self.done_bytes = total_bytes, 0
        self.stop = stop or Event()
        self._progress, self._last = progress, 0.0

    def add(self, n_bytes: int) -> None:
        """Raises:
        Cancelled
        """
        if self.stop.is_set():
            raise Cancelled("Stopped")
        self.done_bytes += n_bytes
        now = time.monotonic()
        if self._progress and now - self._last >= _REPORT_S:
            self._last = now
            self._progress(self.done_bytes, self.total_bytes)

    def finish(self) -> None:
        if self._progress:
            self._progress(self.done_bytes, self.total_bytes)


def sha256_of(path: Path, meter: Meter | None = None) -> str:
    """The file's SHA-256 in hexadecimal digits.

    Raises:
        Cancelled, ModelNotFound, StorageFailed
    """
    meter = meter or Meter(0)
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_PIECE))
    with _open(path) as file:
        while n := _read_into(file, buffer, path):
            digest.update(buffer[:n])
            meter.add(n)
    return digest.hexdigest()


def copy_hashed(source: Path, target: Path, meter: Meter) -> str:
    """Copy to a new file, on disk when this returns, and tell the SHA-256 of what was read.

    Raises:
        Cancelled, ModelNotFound, StorageFailed, DiskFull: nothing of `target` is left then.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_PIECE))
    made = False
    try:
        with _open(source) as file, target.open("xb") as out:
            made = True
            while n := _read_into(file, buffer, source):
                out.write(buffer[:n])
                digest.update(buffer[:n])
                meter.add(n)
            out.flush()
            os.fsync(out.fileno())
    except BaseException as error:
        if made:
            target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise storage_error(error, f"{shown(target)} cannot be written") from error
        raise
    return digest.hexdigest()


def same_content(a: Path, b: Path, meter: Meter | None = None) -> bool:
    """True if two files hold the same bytes.

    Raises:
        Cancelled, ModelNotFound, StorageFailed
    """
    meter = meter or Meter(0)
    left, right = memoryview(bytearray(_PIECE)), memoryview(bytearray(_PIECE))
    with _open(a) as one, _open(b) as other:
        while True:
            n, m = _read_into(one, left, a), _read_into(other, right, b)
            if n != m or left[:n] != right[:m]:
                return False
            if not n:
                return True
            meter.add(n)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise ModelNotFound(f"There is no file {shown(path)}", hint="It may have been moved or deleted.") from error
    except OSError as error:
        raise storage_error(error, f"{shown(path)} cannot be read") from error


def _read_into(file: BinaryIO, buffer: memoryview, path: Path) -> int:
    """Fill the buffer as far as the file goes."""
    try:
        n = 0
        while n < len(buffer):
            got: int = file.readinto(buffer[n:])  # type: ignore[attr-defined]
            if not got:
                break
            n += got
        return n
    except OSError as error:
        raise storage_error(error, f"{shown(path)} cannot be read") from error
