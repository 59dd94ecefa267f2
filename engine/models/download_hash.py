"""SHA-256 of a file while it is written: a thread that follows the part without gaps."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

_BLOCK = 1024 * 1024


class FollowingHash:
    """Reads what was just written (from the page cache) in order, so that the hash is known with the last byte.

    Args:
        prefix: bytes from the start that are in the file without a gap; grows.
    """

    def __init__(self, path: Path, size_bytes: int, prefix: Callable[[], int]) -> None:
        self._path, self._size, self._prefix = path, size_bytes, prefix
        self._wake = threading.Condition()
        self._stopped = False
        self._error: OSError | None = None
        self._digest = ""
        self.bytes_hashed = 0
        self._thread = threading.Thread(target=self._run, name="download-hash", daemon=True)
        self._thread.start()

    def grown(self) -> None:
        """More of the file is there."""
        with self._wake:
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()

    def digest(self, stopped: Callable[[], bool]) -> str | None:
        """Waits for the end; None if `stopped` became true first.

        Raises:
            OSError: the file cannot be read back.
        """
        while self._thread.is_alive() and not stopped():
            self._thread.join(0.05)
        if self._error is not None:
            raise self._error
        return self._digest or None

    def _run(self) -> None:
        sha, buffer = hashlib.sha256(), bytearray(_BLOCK)
        view = memoryview(buffer)
        try:
            with self._path.open("rb", buffering=0) as file:
                while self.bytes_hashed < self._size:
                    ready = self._wait()
                    if self._stopped:
                        return
                    while self.bytes_hashed < ready and not self._stopped:
                        n = file.readinto(view[: min(_BLOCK, ready - self.bytes_hashed)]) or 0
                        if not n:
                            raise OSError("the file became shorter while it was written")
                        sha.update(view[:n])
                        self.bytes_hashed += n
            self._digest = sha.hexdigest()
        except OSError as error:
            self._error = error

    def _wait(self) -> int:
        with self._wake:
            while not self._stopped and (ready := self._prefix()) <= self.bytes_hashed:
                self._wake.wait(0.5)
            return 0 if self._stopped else ready
