"""Runs the command line as a user does: in a process of its own, with a real worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

COMMAND = [sys.executable, "-m", "engine"]
TIMEOUT_S = 90


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, **(extra or {})}


def run(
    *words: str, stdin: str | bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command with its output as text; fails on anything that is not UTF-8.

    One thread: llama.cpp's threads wait for each other by spinning, which on a busy machine takes many times longer.
    """
    if words[:1] == ("chat",) and "--threads" not in words:
        words = (*words, "--threads", "1")
    done = subprocess.run(
        [*COMMAND, *words],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment(env),
        check=False,
    )
    result = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in result.stderr, result.stderr
    return result


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The events of a run with --json."""
    assert done.stdout.endswith("\n"), done
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def answer(*words: str, **more: Any) -> dict[str, Any]:
    """The last event of a run with --json that must end well."""
    done = run("chat", *words, "--json", **more)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    last = events(done)[-1]
    assert last["type"] == "done"
    return last
