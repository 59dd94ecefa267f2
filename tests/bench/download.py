"""Throughput of a download from loopback, hashing included, beside curl to the same disk.

Run: python tests/bench/download.py [MiB] [rounds]. Both end with the data synced to the disk.
Prints MB/s and the quotient.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "hub")]

from hub_help import wait_for  # noqa: E402
from hub_server import COMMIT, Stored  # noqa: E402

from engine.models.download import Downloads, Policy  # noqa: E402
from engine.models.hub import Hub as Client  # noqa: E402
from engine.models.hub_names import HubFile, model_sets  # noqa: E402

gaps: list[float] = []
SERVER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{here!r}]
from hub_server import Hub, Repo, Stored
with Hub({{"ann/big": Repo({{"big-Q8_0.gguf": Stored(disk=Path({path!r}))}})}}) as hub:
    hub.repos["ann/big"].files["big-Q8_0.gguf"].sha256
    print(hub.endpoint, hub.new_link("ann/big", "big-Q8_0.gguf"), flush=True)
    sys.stdin.read()
"""


class Heartbeat(threading.Thread):
    """What another thread of this process (the window's) would feel: the longest it waited for a turn."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.longest_s = threading.Event(), 0.0

    def run(self) -> None:
        last = time.monotonic()
        while not self.over.wait(0.005):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now


def ours(folder: Path, endpoint: str, file: HubFile, policy: Policy) -> float:
    """Seconds of one download, from the call to the finished file."""
    models = folder / "models"
    queue = Downloads(models, Client(endpoint, token=lambda: None), policy=policy)
    beat = Heartbeat()
    beat.start()
    began = time.monotonic()
    info = queue.add("ann/big", COMMIT, model_sets([file])[0])
    end = wait_for(queue, info.id, "done", "failed", "paused", timeout_s=300)
    took = time.monotonic() - began
    assert end.status == "done", end
    beat.over.set()
    gaps.append(beat.longest_s)
    queue.close()
    shutil.rmtree(models)
    return took


def curl(folder: Path, link: str) -> float:
    target = folder / "curl.bin"
    began = time.monotonic()
    subprocess.run(["curl", "-s", "-o", str(target), link], check=True)
    with target.open("r+b") as file:
        os.fsync(file.fileno())
    took = time.monotonic() - began
    target.unlink()
    return took


def main() -> None:
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory(prefix="inglenook-bench-", dir=".") as name:
        folder = Path(name).resolve()
        source = folder / "source.gguf"
        with source.open("wb") as out:
            out.write(b"GGUF\x03\0\0\0" + os.urandom(2**20 - 8))
            for _ in range((size >> 20) - 1):
                out.write(os.urandom(2**20))
            os.fsync(out.fileno())
        file = HubFile("big-Q8_0.gguf", size, Stored(disk=source).sha256)
        code = SERVER.format(here=str(ROOT / "tests" / "hub"), path=str(source))
        server = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None and server.stdin is not None
        endpoint, link = server.stdout.readline().split()
        theirs, four, one = [], [], []
        for _ in range(rounds):
            theirs.append(curl(folder, link))
            four.append(ours(folder, endpoint, file, Policy()))
            one.append(ours(folder, endpoint, file, Policy(connections=1)))
        server.stdin.close()
        server.wait()
        base = size / statistics.median(theirs) / 1e6
        print(f"curl and sync:           {base:7.0f} MB/s")
        for label, times in (("four connections", four), ("one connection", one)):
            speed = size / statistics.median(times) / 1e6
            quotients = statistics.median(a / b for a, b in zip(theirs, times, strict=True))
            print(f"ours, {label:18} {speed:7.0f} MB/s  {quotients:.2f} of curl (median of {rounds} pairs)")
        print(f"longest wait of another thread meanwhile: {max(gaps) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
