"""500 downloads with random faults, then 50 SIGKILLs at random moments.

Run: python tests/bench/download_soak.py [N] [KILLS]

Prints how they ended and how memory grew in the second half; any broken rule ends it with an error.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "hub")]

from soak import faulty_downloads, killed_downloads  # noqa: E402


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    with tempfile.TemporaryDirectory(prefix="inglenook-soak-") as folder:
        began = time.monotonic()
        print(f"{count} downloads:", faulty_downloads(Path(folder) / "a", count, seed=1), flush=True)
        print(f"  in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        print(f"{kills} kills:", killed_downloads(Path(folder) / "b", kills, seed=2))
        print(f"  in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    import os

    os.environ["PYTHONPATH"] = str(ROOT)
    main()
