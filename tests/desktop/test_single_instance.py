"""One window per profile; what a dead process left behind does not lock the user out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QLockFile
from second_start import SECOND

from desktop.single_instance import SingleInstance, server_name
from engine.errors import StorageFailed

HOLD = """
import sys, time
import desktop
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from desktop.single_instance import SingleInstance
app = QCoreApplication([])
one = SingleInstance(Path(sys.argv[1]))
print(one.acquire(), flush=True)
time.sleep(60)
"""

GARBAGE = """
import sys
import desktop
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from PySide6.QtNetwork import QLocalSocket
from desktop.single_instance import server_name
app = QCoreApplication([])
socket = QLocalSocket()
socket.connectToServer(server_name(Path(sys.argv[1])))
assert socket.waitForConnected(2000)
socket.write(b"[1, 2\\n")
assert socket.waitForBytesWritten(2000)
assert socket.waitForDisconnected(5000)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "profile" / "inglenook.lock"


def start(script: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, *args], stdout=subprocess.PIPE, text=True)


def test_a_second_start_raises_the_first_and_hands_over_its_files(qtbot, lock: Path) -> None:
    first = SingleInstance(lock)
    assert first.acquire()
    assert first.owner_pid == os.getpid()
    files: list[list[str]] = []
    first.second_start.connect(files.append)
    second = start(SECOND, str(lock), "/models/a.gguf")
    qtbot.waitUntil(lambda: second.poll() is not None, timeout=20_000)
    assert second.stdout is not None
    assert second.stdout.read().split() == ["False", "True"]
    assert files == [[str(Path("/models/a.gguf").absolute())]]
    second.stdout.close()
    first.release()


def test_the_lock_of_a_killed_process_is_taken_over(qtbot, lock: Path) -> None:
    holder = start(HOLD, str(lock))
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "True"
    blocked = SingleInstance(lock)
    assert not blocked.acquire()
    assert blocked.owner_pid == holder.pid
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert lock.exists()
    assert blocked.acquire()
    blocked.release()


def test_two_profiles_run_side_by_side(qtbot, tmp_path: Path) -> None:
    one, two = SingleInstance(tmp_path / "a" / "lock"), SingleInstance(tmp_path / "b" / "lock")
    assert one.acquire() and two.acquire()
    assert server_name(tmp_path / "a" / "lock") != server_name(tmp_path / "b" / "lock")
    one.release()
    two.release()


def test_a_first_that_does_not_answer_is_reported(qtbot, lock: Path) -> None:
    holder = start(HOLD, str(lock))  # listens, but its event loop does not turn
    assert holder.stdout is not None
    holder.stdout.readline()
    second = SingleInstance(lock)
    assert not second.acquire()
    assert not second.notify_first()
    holder.kill()
    holder.wait()
    holder.stdout.close()


def test_a_first_that_answers_late_is_waited_for(qtbot, lock: Path) -> None:
    """It holds the profile, but is still at its own start: no error, and its message comes once."""
    first = SingleInstance(lock)
    assert first.acquire()
    files: list[list[str]] = []
    first.second_start.connect(files.append)
    second = start(SECOND.replace("sys.argv[2:])", "sys.argv[2:], 15.0)"), str(lock), "/models/a.gguf")
    time.sleep(4)  # the event loop does not turn meanwhile
    qtbot.waitUntil(lambda: second.poll() is not None, timeout=20_000)
    assert second.stdout is not None
    assert second.stdout.read().split() == ["False", "True"]
    second.stdout.close()
    assert len(files) == 1
    first.stop_listening()
    assert not SingleInstance(lock).notify_first(), "one that is closing answers nobody"
    first.release()


def test_a_folder_that_cannot_be_written_to_is_not_another_process(
    qtbot, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so Qt's answer for a read-only folder is given by hand."""

    class Refused(QLockFile):
        def tryLock(self, timeout: int = 0) -> bool:
            return False

        def error(self) -> QLockFile.LockError:
            return QLockFile.LockError.PermissionError

    monkeypatch.setattr("desktop.single_instance.QLockFile", Refused)
    with pytest.raises(StorageFailed, match="cannot be written to"):
        SingleInstance(lock).acquire()


def test_garbage_on_the_socket_is_ignored(qtbot, lock: Path) -> None:
    first = SingleInstance(lock)
    assert first.acquire()
    first.second_start.connect(lambda _: pytest.fail("this was no start message"))
    other = start(GARBAGE, str(lock))
    qtbot.waitUntil(lambda: other.poll() is not None, timeout=20_000)
    assert other.returncode == 0
    assert other.stdout is not None
    other.stdout.close()
    first.release()
