"""pyqtgraph, brought in piece by piece, so that the window does not stand still meanwhile.

Its import takes half a second, most of it for making every Python type of QtCore, QtGui and QtWidgets; on another
thread that has ended in crashes (see `icons.py`). So it happens on the GUI thread, a few milliseconds in each turn of
the event loop: first the types, then the statements of the package's own `__init__` one after the other, as an import
would run them, and the largest modules before those that need them. What touches no Qt is imported on a thread before.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType

from PySide6 import QtCore, QtGui, QtWidgets
from PySide6.QtCore import QObject, QTimer
from shiboken6 import isValid

from desktop.tasks import Tasks

_NAME = "pyqtgraph"
_SLICE_S = 0.006
#: used by it, and not by Qt
_PLAIN = ("numpy", "cProfile", "multiprocessing.connection", "xml.etree.ElementTree", "decimal", "pickle", "zipfile")
#: its largest modules, each after what it needs itself
_LARGE = (
    *("Qt", "debug", "functions", "graphicsItems.GraphicsObject", "graphicsItems.GraphicsWidget"),
    *("graphicsItems.AxisItem", "graphicsItems.ScatterPlotItem", "graphicsItems.ViewBox.ViewBoxMenu"),
    *("graphicsItems.ViewBox.ViewBox", "graphicsItems.PlotCurveItem", "graphicsItems.PlotDataItem"),
    *("graphicsItems.InfiniteLine", "widgets.FileDialog", "graphicsItems.LegendItem"),
    *("graphicsItems.PlotItem.PlotItem", "SRTTransform3D", "graphicsItems.ROI", "widgets.TreeWidget", "parametertree"),
)
#: what is left of an import that has begun; one for the whole program
_steps: Iterator[None] | None = None
_whole = False


def load(tasks: Tasks, then: Callable[[ModuleType], None], owner: QObject) -> None:
    """Call `then` with pyqtgraph as soon as it is there; not at all where `owner` is gone by then."""
    if _whole:
        then(sys.modules[_NAME])
        return
    tasks.run(lambda: [importlib.import_module(name) for name in _PLAIN], lambda _: _go_on(then, owner), owner=owner)


def _go_on(then: Callable[[ModuleType], None], owner: QObject) -> None:
    timer = QTimer(owner)

    def turn() -> None:
        if not isValid(owner) or not _advance():
            return
        timer.stop()
        timer.deleteLater()
        then(sys.modules[_NAME])

    timer.timeout.connect(turn)
    timer.start(0)


def _advance() -> bool:
    """Work on the import for a moment; True when it is done."""
    global _steps, _whole
    if _whole:
        return True
    if _steps is None:
        _steps = _import()
    end = time.perf_counter() + _SLICE_S
    try:
        while time.perf_counter() < end:
            next(_steps)
    except StopIteration:
        _whole = True
    except BaseException:
        _steps = None
        sys.modules.pop(_NAME, None)
        raise
    return _whole


def _import() -> Iterator[None]:
    for qt in (QtCore, QtGui, QtWidgets):
        for name in dir(qt):
            getattr(qt, name, None)
            yield
    yield from _package(_NAME)


def _package(name: str) -> Iterator[None]:
    """Import a package statement by statement, and those in it that its statements name."""
    spec = importlib.util.find_spec(name) if name not in sys.modules else None
    source = getattr(spec.loader, "get_source", lambda _: None)(name) if spec is not None else None
    if spec is None or source is None:  # it is there already, or a packaged program has no sources
        importlib.import_module(name)
        return
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            yield from _before(name, statement)
        exec(compile(ast.Module([statement], []), spec.origin or name, "exec"), module.__dict__)
        yield
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)


def _before(package: str, statement: ast.ImportFrom) -> Iterator[None]:
    """What is large and will be wanted by a statement is imported before it."""
    if package == _NAME and statement.module == "colormap":  # the first that needs most of the rest
        for name in _LARGE:
            yield from _one(f"{_NAME}.{name}")
    if statement.module is None:
        for alias in statement.names:
            yield from _one(f"{package}.{alias.name}")


def _one(name: str) -> Iterator[None]:
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        spec = None
    if spec is None:  # no module, or one of another version
        return
    if spec.submodule_search_locations:
        yield from _package(name)
    else:
        importlib.import_module(name)
        yield
