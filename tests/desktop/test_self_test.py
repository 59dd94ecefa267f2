"""`--self-test-window` shows every page, and fails where one fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BROKEN = """
import sys
from desktop import plots
def missing(tasks, then, owner):
    raise ModuleNotFoundError("No module named 'PySide6.QtOpenGL'")
plots.load = missing
from desktop.__main__ import main
sys.exit(main(["--self-test-window", "--temp-home"]))
"""
WHOLE = """
import sys
import desktop.__main__, desktop.app
seen = []
from desktop import self_test
step = self_test.PageWalk._step
def noted(self):
    step(self)
    seen.append(self._window.views.currentWidget().objectName())
self_test.PageWalk._step = noted
code = desktop.__main__.main(["--self-test-window", "--home", sys.argv[1]])
print(" ".join(dict.fromkeys(seen)), "pyqtgraph" in sys.modules, "keyring" in sys.modules)
sys.exit(code)
"""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=100)


def test_every_page_is_shown(home: Path) -> None:
    done = run(WHOLE, str(home))
    assert (done.returncode, done.stderr) == (0, "")
    names, *loaded = done.stdout.rsplit(" ", 2)
    assert {"models_view", "inside_view", "settings_view"} <= set(names.split()), names
    assert [word.strip() for word in loaded] == ["True", "True"], "what is loaded late was loaded"


def test_a_page_that_lacks_a_part_fails_the_test(home: Path) -> None:
    done = run(BROKEN)
    assert done.returncode == 1
    assert "No module named 'PySide6.QtOpenGL'" in done.stderr
