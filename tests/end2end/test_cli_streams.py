"""Standard streams that are closed or cannot take more: a sentence or silence, never a traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from cli_runner import COMMAND, environment

CHAT = ("chat", "--model", "starter", "--prompt", "hi", "--max-tokens", "2", "--threads", "1")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="redirections of a POSIX shell")


def shell(words: tuple[str, ...], redirections: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.join([*COMMAND, *words])} {redirections}"
    return subprocess.run(
        ["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, env=environment()
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux")
@pytest.mark.parametrize("words", [CHAT, (*CHAT, "--json"), ("doctor",), ("chat", "--model", "nope", "--json")])
def test_output_on_a_full_disk(words: tuple[str, ...]) -> None:
    done = shell(words, ">/dev/full")
    assert done.returncode == 15
    assert "Traceback" not in done.stderr and "disk is full" in done.stderr and len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("words", [CHAT, ("doctor",)])
def test_closed_streams(words: tuple[str, ...], closed: str) -> None:
    done = shell(words, closed)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout.strip()) == (closed == "2>&-")
