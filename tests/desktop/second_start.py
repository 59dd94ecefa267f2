"""A second start of the program in a process of its own: the lock, then what it was asked to open."""

SECOND = """
import sys
import desktop
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from desktop.single_instance import SingleInstance
app = QCoreApplication([])
one = SingleInstance(Path(sys.argv[1]))
print(one.acquire(), one.notify_first(sys.argv[2:]), flush=True)
"""
