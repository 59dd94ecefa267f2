"""From the start of the process to the painted window: of the frozen program, of the sources, warm and cold.

    python tests/bench/start.py [--program build/frozen/inglenook/inglenook] [--rounds 7] [--cold 3]

Prints a table. Nothing is asserted: machines differ, and this is for people to read. The time ends when the program
logs that its window is painted and takes input. Cold means that the system has forgotten all files; that needs root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FROZEN = ROOT / "build" / "frozen" / "inglenook" / ("inglenook.exe" if os.name == "nt" else "inglenook")
CACHES = Path("/proc/sys/vm/drop_caches")


def once(command: list[str], home: Path) -> float:
    """Seconds from the start to the painted window; the profile in `home` is used again."""
    log = home / "logs" / "inglenook.log"
    log.unlink(missing_ok=True)
    env = {**os.environ, "INGLENOOK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    env.setdefault("QT_QPA_PLATFORM", "offscreen")
    begun = time.perf_counter()
    process = subprocess.Popen([*command, "--self-test-window"], env=env, cwd=ROOT)
    took = 0.0
    while not took and process.poll() is None:
        time.sleep(0.002)
        try:
            if b"window usable" in log.read_bytes():
                took = time.perf_counter() - begun
        except OSError:
            continue
    process.terminate()  # the pages that the self-test would show now are not measured here
    if (process.wait() and os.name == "posix") or not took:
        raise SystemExit(f"{command[0]} opened no window (exit code {process.returncode})")
    return took


def forget_files() -> None:
    """Make the system forget the content of all files."""
    os.sync()
    CACHES.write_text("3\n")


def measure(name: str, command: list[str], rounds: int, cold: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        once(command, Path(folder))
        warm = [once(command, Path(folder)) for _ in range(rounds)]
        row(f"{name}, warm", warm)
        if cold and os.access(CACHES, os.W_OK):
            times = []
            for _ in range(cold):
                forget_files()
                times.append(once(command, Path(folder)))
            row(f"{name}, cold", times)


def row(name: str, times: list[float]) -> None:
    print(f"{name:32}{statistics.median(times):6.2f} s   ({min(times):.2f} to {max(times):.2f}, {len(times)} starts)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", type=Path, default=FROZEN)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cold", type=int, default=3)
    options = parser.parse_args()
    if options.program.is_file():
        measure("frozen program", [str(options.program)], options.rounds, options.cold)
    measure("from source", [sys.executable, "-m", "desktop"], options.rounds, options.cold)


if __name__ == "__main__":
    main()
