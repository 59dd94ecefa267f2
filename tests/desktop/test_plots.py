"""The library of the charts: brought in piece by piece it is the same, and no turn of the event loop takes long."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PIECEWISE = """
import json, sys, threading
sys.path.insert(0, FOLDER)
from PySide6.QtWidgets import QApplication, QWidget
app = QApplication([])
from heartbeat import Heartbeat, run_until
from desktop import plots

class Tasks:
    def run(self, work, then, *, owner):
        done = threading.Thread(target=work)
        done.start()
        run_until(lambda: not done.is_alive())
        then(None)

owner, found = QWidget(), []
with Heartbeat() as heart:
    plots.load(Tasks(), found.append, owner)
    assert not found, "all at once"
    run_until(lambda: bool(found))
again = []
plots.load(Tasks(), again.append, owner)
assert again == found
plot = found[0].PlotWidget()
plot.plot([1, 2], [3, 4])
names = sorted(name for name in sys.modules if name.startswith("pyqtgraph"))
inner = sorted(dir(sys.modules["pyqtgraph.parametertree"]))
print(json.dumps([sorted(dir(found[0])), names, inner, heart.longest_turn_s, heart.cpu_s]))
"""
WHOLE = """
import json, sys
from PySide6.QtWidgets import QApplication
app = QApplication([])
import pyqtgraph
plot = pyqtgraph.PlotWidget()
plot.plot([1, 2], [3, 4])
names = sorted(name for name in sys.modules if name.startswith("pyqtgraph"))
print(json.dumps([sorted(dir(pyqtgraph)), names, sorted(dir(sys.modules["pyqtgraph.parametertree"]))]))
"""


def run(code: str) -> list[Any]:
    code = code.replace("FOLDER", repr(str(Path(__file__).parent)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and not done.stderr.replace("This plugin does not support", ""), done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.serial
def test_piece_by_piece_it_is_the_same_and_nothing_waits() -> None:
    *piecewise, longest_s, whole_s = run(PIECEWISE)
    names, modules, inner = run(WHOLE)
    assert piecewise[0] == names
    assert set(piecewise[1]) == set(modules)
    assert piecewise[2] == inner
    assert longest_s < 0.15, f"of {whole_s:.2f} s"
