"""The soak in small: `tests/bench/download_soak.py` runs it in full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak import faulty_downloads, killed_downloads


def test_random_faults(models: Path) -> None:
    ends = faulty_downloads(models, 30, seed=7)
    assert ends["done"] + ends["failed"] == 30 and ends["done"] >= 20, ends


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_and_started_again(models: Path) -> None:
    figures = killed_downloads(models, 8, seed=5)
    assert figures["kills"] == 8 and figures["resumed_ahead"] >= 2, figures
