"""One window per profile: a second start raises the first one and hands over what it was asked to open.

A lock file with the owner's process id decides who is first; Qt takes over the lock of a process that is gone. The
first listens on a local socket named after the profile, so two profiles never meet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from desktop import openings
from engine.errors import StorageFailed
from engine.paths import shown

_log = logging.getLogger("inglenook.desktop")
_TIMEOUT_MS = 2000
_MAX_MESSAGE_BYTES = 64 * 1024


def server_name(lock_path: Path) -> str:
    """Name of the local socket of a profile."""
    return "inglenook-" + hashlib.sha256(str(lock_path.resolve()).encode()).hexdigest()[:16]


class SingleInstance(QObject):
    """Holds the profile's lock while it lives.

    Signals:
        second_start(list[str]): another start happened; paths and links that it was asked to open.
    """

    second_start = Signal(object)

    def __init__(self, lock_path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = lock_path
        self._lock = QLockFile(str(lock_path))
        self._lock.setStaleLockTime(0)  # only a dead owner makes a lock stale, never its age
        self._server: QLocalServer | None = None

    def acquire(self) -> bool:
        """Become the first instance; False if another process holds the profile.

        Raises:
            StorageFailed: the lock cannot be made here at all (a read-only folder, for instance).
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._lock.tryLock(0):
            if self._lock.error() == QLockFile.LockError.PermissionError:
                raise StorageFailed(
                    f"The folder {shown(self._path.parent)} cannot be written to.",
                    hint="Check its permissions, or use another profile with --home.",
                )
            return False
        name = server_name(self._path)
        QLocalServer.removeServer(name)  # a socket file left by a process that was killed
        server = QLocalServer(self)
        server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        server.newConnection.connect(self._accept)
        if not server.listen(name):
            _log.warning("a second start cannot reach this one: %s", server.errorString())
        self._server = server
        return True

    @property
    def owner_pid(self) -> int:
        """Process id of the lock's owner, 0 if unknown."""
        # getLockInfo has no stable binding; the file's first line is the pid
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(self._path.read_text(encoding="utf-8", errors="replace").splitlines()[0])
        return 0

    def notify_first(self, files: Sequence[str] = (), answer_s: float = 2.0) -> bool:
        """Ask the first instance to come to the front and open `files`; False if it does not answer in that time,
        and at once if nobody listens."""
        socket = QLocalSocket()
        socket.connectToServer(server_name(self._path))
        if not socket.waitForConnected(_TIMEOUT_MS):
            return False  # nobody listens
        message = json.dumps({"files": [openings.absolute(file) for file in files]}).encode() + b"\n"
        socket.write(message)
        written = socket.waitForBytesWritten(_TIMEOUT_MS)
        answered = socket.waitForReadyRead(round(answer_s * 1000))
        socket.disconnectFromServer()
        return bool(written and answered)

    def release(self) -> None:
        """Let go of the profile. Idempotent."""
        self.stop_listening()
        self._lock.unlock()

    def stop_listening(self) -> None:
        """Answer no second start any more: it waits until this process has let go, and becomes the first."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self) -> None:
        if self._server is None:
            return
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.readyRead.connect(lambda socket=socket: self._read(socket))
            socket.disconnected.connect(socket.deleteLater)
            if socket.canReadLine():
                self._read(socket)

    def _read(self, socket: QLocalSocket) -> None:
        if not socket.canReadLine():
            if socket.bytesAvailable() > _MAX_MESSAGE_BYTES:
                socket.abort()
            return
        line = bytes(socket.readLine(_MAX_MESSAGE_BYTES).data())
        try:
            files = [openings.argument(str(file)) for file in json.loads(line)["files"]]
        except (ValueError, KeyError, TypeError):
            _log.warning("a local process sent something that is not a start message")
            socket.abort()
            return
        socket.write(b"ok\n")
        socket.flush()
        self.second_start.emit(files)
