"""What the tests of downloads share."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path
from typing import Any

from hub_server import COMMIT, Hub, Repo, Stored

from engine.events import DownloadInfo
from engine.models.download import Downloads, Policy
from engine.models.hub import Hub as Client
from engine.models.hub_names import HubFile, ModelSet, model_sets

QUICK = Policy(
    parallel_from_bytes=2_000_000,
    first_range_bytes=300_000,
    max_range_bytes=600_000,
    least_range_bytes=100_000,
    stall_s=1.0,
    first_wait_s=0.02,
    max_wait_s=0.1,
    retry_after_cap_s=0.3,
    progress_bytes=1000,
    checkpoint_s=0.1,
    margin_bytes=1_000_000,
    quiet_s=0.3,
    report_s=0.05,
)


def model_bytes(size: int, seed: int = 1) -> bytes:
    """Bytes that begin like a GGUF file."""
    return (b"GGUF" + struct.pack("<I", 3) + random.Random(seed).randbytes(size))[:size]


def put(hub: Hub, size: int = 500_000, name: str = "Tiny-Q4_K_M.gguf", repo: str = "ann/tiny", **options: Any) -> bytes:
    """A repository with one model; returns its bytes."""
    data = model_bytes(size)
    hub.repos[repo] = Repo({name: Stored(data)}, **options)
    return data


def the_set(hub: Hub, repo: str = "ann/tiny") -> ModelSet:
    """The set as the truth is on the hub, without asking it."""
    files = [HubFile(path, file.size, file.sha256) for path, file in hub.repos[repo].files.items()]
    return model_sets(files)[0]


def start(queue: Downloads, hub: Hub, repo: str = "ann/tiny") -> DownloadInfo:
    return queue.add(repo, COMMIT, the_set(hub, repo))


def _files(models: Path) -> list[str]:
    # os.walk: folders may go away while it looks
    return sorted(str((Path(at) / name).relative_to(models)) for at, _, names in os.walk(models) for name in names)


def listed(models: Path) -> list[str]:
    """What any list of models would find."""
    return [name for name in _files(models) if name.endswith(".gguf")]


def leftovers(models: Path) -> list[str]:
    """Everything but finished models."""
    return [name for name in _files(models) if not name.endswith(".gguf")]


def client(hub: Hub, token: str | None = None) -> Client:
    return Client(hub.endpoint, token=lambda: token)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wait_for(queue: Downloads, download_id: str, *statuses: str, timeout_s: float = 20) -> DownloadInfo:
    """The download's record once it has one of the statuses."""
    deadline = time.monotonic() + timeout_s
    info = None
    while time.monotonic() < deadline:
        info = next((item for item in queue.list() if item.id == download_id), None)
        if info is not None and info.status in statuses:
            return info
        time.sleep(0.01)
    raise AssertionError(f"still {info}")
