"""Which program is started as a process of ours: packaged on Windows the one with a console, and no window is seen."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from engine.worker import process

ROOT = Path(__file__).resolve().parents[2]


def frozen(monkeypatch: pytest.MonkeyPatch, program: Path, platform: str) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "platform", platform)


def test_from_source_it_is_this_interpreter() -> None:
    assert process.own_program() == sys.executable
    assert process.default_command() == [sys.executable, "-m", "engine.worker"]


def test_packaged_on_windows_it_is_the_console_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    window, console = tmp_path / "inglenook.exe", tmp_path / process.CONSOLE_PROGRAM
    frozen(monkeypatch, window, "win32")
    assert process.default_command() == [str(window), "--worker"]  # a folder that lost the other half
    console.touch()
    assert process.default_command() == [str(console), "--worker"]
    monkeypatch.setattr(sys, "executable", str(console))  # started from a terminal
    assert process.own_program() == str(console)


def test_packaged_elsewhere_it_is_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / process.CONSOLE_PROGRAM).touch()
    for platform in ("linux", "darwin"):
        frozen(monkeypatch, tmp_path / "inglenook", platform)
        assert process.default_command() == [str(tmp_path / "inglenook"), "--worker"]


def test_no_console_window_flashes_on_windows() -> None:
    """Whatever starts a process of ours says so; `sysctl` and the self-test never run under a window."""
    without = []
    for path in sorted((ROOT / "engine").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if (
                isinstance(node, ast.Call)
                and called
                in (
                    "subprocess.run",
                    "subprocess.Popen",
                    "subprocess.check_output",
                )
                and not any(word.arg == "creationflags" for word in node.keywords)
            ):
                without.append(f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(node.args[0])}")
    allowed = ("sysctl", "engine/cli_self_test.py")
    assert [line for line in without if not any(word in line for word in allowed)] == []
