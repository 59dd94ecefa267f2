"""Keeps Python 3.11 alive under PySide6 6.12.

PySide6 6.12.0 returns True from `Signal.emit()` and handles the None of a queued slot without taking a reference:
each emit drops one of True's, each queued delivery one of None's (measured: 50 emits, 50 references). Since Python
3.12 these objects are immortal and nothing happens; Python 3.11 ends with "none_dealloc: deallocating None" after
a few thousand signals. Giving the three objects a stock of references that no session can use up has the same effect
as immortality. A test emits enough signals to fail without it.
"""

from __future__ import annotations

import ctypes
import sys

_STOCK = 1 << 40


def needed() -> bool:
    """True on interpreters whose None, True and False can be used up."""
    return sys.implementation.name == "cpython" and sys.version_info < (3, 12) and not hasattr(sys, "getobjects")


def protect() -> None:
    """Give None, True and False the stock, once."""
    if not needed():
        return
    for item in (None, True, False):
        if sys.getrefcount(item) < _STOCK // 2:
            # a CPython object begins with its reference count (Include/object.h, `PyObject.ob_refcnt`)
            ctypes.c_ssize_t.from_address(id(item)).value += _STOCK
