"""The first statements of a packaged program; everything else is in `desktop/__main__.py`."""

from engine import frozen

frozen.settle()

from desktop.__main__ import run  # noqa: E402

run()
