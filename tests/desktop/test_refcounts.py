"""PySide6 6.12 uses up references of None and True; the window must outlive any number of signals."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import desktop
from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal

class Source(QObject):
    said = Signal(object)

app = QCoreApplication([])
source = Source()
source.said.connect(lambda _: None, Qt.ConnectionType.QueuedConnection)
for i in range(30_000):
    source.said.emit(i)
    if i % 100 == 0:
        app.processEvents()
print("alive")
"""


def test_thousands_of_signals_do_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr
