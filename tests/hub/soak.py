"""Many downloads with random faults, and a process that is killed again and again: what must hold after each.

Used by `test_soak.py` in small and by `tests/bench/download_soak.py` in full.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hub_help import QUICK, client, leftovers, listed, model_bytes, resident_bytes, the_set
from hub_server import COMMIT, Call, Hub, Repo, Stored

from engine.models.download import Downloads


def random_fault(rng: random.Random) -> object:
    """A fault that comes with some chance at each answer of the storage, of one kind per download."""
    chance = rng.choice([0.0, 0.2, 0.5])
    kind = rng.choice(
        ["cut", "reset", "whole", "range", "flip", "etag", "403", "404", "416", "429", "500", "nolen", "gzip", "hub"]
    )

    def act(call: Call) -> None:
        if not call.is_file and kind != "hub":
            return
        if rng.random() >= chance:
            return
        if kind == "hub" and call.host == "hub" and "/resolve/" in call.path:
            call.fail(rng.choice([500, 502, 503]))
        elif call.host != "storage" or not call.is_file:
            return
        elif kind in ("cut", "reset"):
            call.cut_at, call.reset = rng.randrange(call.end - call.start), kind == "reset"
        elif kind == "whole":
            call.whole()
        elif kind == "range":
            call.answer["Content-Range"] = rng.choice(["bytes 0-9/10", "bytes 7-9/99", "nonsense"])
        elif kind == "flip":
            call.flip_at = rng.randrange(call.start, call.end)
        elif kind == "etag":
            call.answer["ETag"] = f'"{rng.random()}"'
        elif kind == "nolen":
            call.no_length, call.cut_at = True, rng.randrange(call.end - call.start + 1)
        elif kind == "gzip":
            call.packed()
        elif kind in ("403", "404", "416", "429", "500"):
            call.fail(int(kind), {"Retry-After": "0"})

    return act


def faulty_downloads(models: Path, count: int, seed: int) -> dict[str, int]:
    """`count` downloads one after the other (two at once); checks all of them and returns how they ended."""
    rng = random.Random(seed)
    ends = {"done": 0, "failed": 0}
    memory: list[int] = []
    with Hub() as hub:
        queue = Downloads(models, client(hub), policy=QUICK)
        for number in range(0, count, 2):
            pair = {}
            hub.faults[:] = [random_fault(rng)]  # type: ignore[list-item]
            for n in (number, number + 1):
                name, size = f"ann/m{n}", rng.choice([1000, 90_000, 400_000, 2_200_000])
                hub.repos[name] = Repo({"x-Q4_0.gguf": Stored(model_bytes(size, n))})
                pair[queue.add(name, COMMIT, the_set(hub, name)).id] = name
            wait_all(queue, set(pair), models)
            for download_id, name in pair.items():
                info = next(info for info in queue.list() if info.id == download_id)
                ends[info.status] += 1
                path = models / name / "x-Q4_0.gguf"
                if info.status == "done":
                    assert path.read_bytes() == hub.repos[name].files["x-Q4_0.gguf"].data
                    path.unlink()
                else:
                    assert info.status == "failed" and info.error is not None and not path.exists(), info
                queue.cancel(download_id)
                del hub.repos[name]
            del hub.calls[:]
            memory.append(resident_bytes())
        deadline = time.monotonic() + 10
        while leftovers(models) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert leftovers(models) == [] and listed(models) == [], leftovers(models)
        queue.close()
    half = memory[len(memory) // 2]
    ends["grown_kib"] = (memory[-1] - half) // 1024
    ends["peak_mib"] = max(memory) >> 20
    return ends


def wait_all(queue: Downloads, ids: set[str], models: Path) -> None:
    """Until all have ended; meanwhile nothing unfinished may be listed."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        seen = listed(models)
        states = {info.id: info for info in queue.list()}
        done = {f"{states[i].repo}/x-Q4_0.gguf" for i in ids if states[i].status == "done"}
        # a file may be there a moment before its download is done; then it is complete already
        late = {f"{states[i].repo}/x-Q4_0.gguf" for i in ids if states[i].bytes_done == states[i].bytes_total}
        assert set(seen) <= done | late, (seen, done)
        if all(states[i].status in ("done", "failed", "paused") for i in ids):
            return
        time.sleep(0.02)
    raise AssertionError(f"still {queue.list()}")


CHILD = """
import sys, time
from pathlib import Path
sys.path[:0] = [{here!r}]
from hub_help import QUICK
from engine.models.download import Downloads
from engine.models.hub import Hub
queue = Downloads(Path({models!r}), Hub({endpoint!r}, token=lambda: None), policy=QUICK)
queue.resume_all()
print("up", queue.list()[0].bytes_done if queue.list() else -1, flush=True)
while queue.list() and queue.list()[0].status not in ("done", "failed"):
    time.sleep(0.01)
print("end", queue.list()[0].status if queue.list() else "none", flush=True)
"""


def killed_downloads(models: Path, kills: int, seed: int, size: int = 6_000_000) -> dict[str, int]:
    """One download whose process gets SIGKILL at `kills` random moments; returns figures after checking the bytes."""
    rng = random.Random(seed)
    figures = {"kills": 0, "resumed_ahead": 0, "most_lost_kib": 0, "finished_early": 0}
    with Hub() as hub:

        def slow(call: Call) -> None:
            if call.host == "storage" and call.is_file:
                call.stall_at, call.stall_s = rng.randrange(call.end - call.start + 1), 0.3

        hub.faults.append(slow)
        while figures["kills"] < kills:
            name = f"ann/k{figures['kills']}"
            hub.repos[name] = Repo({"x-Q4_0.gguf": Stored(model_bytes(size, figures["kills"]))})
            queue = Downloads(models, client(hub), policy=QUICK)
            queue.close()
            _seed_download(models, hub, name)
            _kill_until_done(models, hub, rng, kills, figures)
            assert (models / name / "x-Q4_0.gguf").read_bytes() == hub.repos[name].files["x-Q4_0.gguf"].data
            assert leftovers(models) == []
    return figures


def _seed_download(models: Path, hub: Hub, name: str) -> None:
    """A download that was added and at once closed, as it lies on the disk."""
    queue = Downloads(models, client(hub), policy=QUICK, max_running=0)
    queue.add(name, COMMIT, the_set(hub, name))
    queue.close()


def _kill_until_done(models: Path, hub: Hub, rng: random.Random, kills: int, figures: dict[str, int]) -> None:
    before = 0
    code = CHILD.format(here=str(Path(__file__).parent), models=str(models), endpoint=hub.endpoint)
    for _ in range(200):
        unfinished = set(listed(models))
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        up = child.stdout.readline().split()
        begins_at = int(up[1])
        if before:
            figures["resumed_ahead"] += begins_at > 0
        if figures["kills"] < kills:
            time.sleep(rng.uniform(0.0, 0.9))
        else:
            child.wait(60)
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            figures["kills"] += 1
        child.wait()
        ended = child.stdout.read().split()
        child.stdout.close()
        if ended[:1] == ["end"]:
            assert ended[1] == "done", ended
            return
        if set(listed(models)) != unfinished:  # killed after the rename: the next start tidies up
            figures["finished_early"] += 1
        queue = Downloads(models, client(hub), policy=QUICK)
        have = queue.list()[0].bytes_done if queue.list() else 0
        queue.close()
        if not queue.list():
            return
        assert have >= begins_at, (have, begins_at)
        before = have
    raise AssertionError("it never ends")
