"""How fast this computer reads its memory: a short test in a process of its own.

    python -m engine.fit.bandwidth SECONDS THREADS

prints bytes a second as JSON. It reads blocks larger than any cache with as many threads as llama.cpp would use.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

from engine.worker.process import NO_WINDOW, child_env, is_frozen, own_program

_BLOCK_BYTES = 64 * 1024 * 1024
_EXTRA_S = 20.0
#: other programs take the memory too; the best of so many moments is the memory's own speed
_MOMENTS = 6


def measure(seconds: float, threads: int) -> float:
    """Bytes a second of all threads together, the best of a few moments; for the child, it keeps all cores busy."""
    import numpy as np

    blocks = [np.ones(_BLOCK_BYTES // 4, np.float32) for _ in range(threads)]
    return max(_moment(blocks, seconds / _MOMENTS) for _ in range(_MOMENTS))


def _moment(blocks: list[Any], seconds: float) -> float:
    totals = [0] * len(blocks)
    began = time.perf_counter()

    def read(index: int) -> None:
        while time.perf_counter() < began + seconds:
            blocks[index].max()  # reads every byte once, without the interpreter's lock
            totals[index] += _BLOCK_BYTES

    workers = [threading.Thread(target=read, args=(index,)) for index in range(len(blocks))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(totals) / (time.perf_counter() - began)


def measured_in_child(seconds: float, threads: int) -> float:
    """`measure` in a process that ends at once; 0 where it fails."""
    program = [own_program(), *(["--bandwidth"] if is_frozen() else ["-m", "engine.fit.bandwidth"])]
    try:
        done = subprocess.run(
            [*program, str(seconds), str(threads)],
            capture_output=True,
            timeout=seconds + _EXTRA_S,
            check=True,
            env=child_env(),
            creationflags=NO_WINDOW,
        )
        return max(0.0, float(json.loads(done.stdout)))
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0.0


def main(arguments: list[str]) -> int:
    sys.stdout.write(json.dumps(measure(float(arguments[0]), int(arguments[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
