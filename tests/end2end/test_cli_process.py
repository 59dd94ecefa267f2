"""The command line as a process: interrupts, pipes, deaths, terminals; it leaves nothing behind."""

from __future__ import annotations

import codecs
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_runner import COMMAND, environment, events, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="uses POSIX signals and terminals")

Scripted = Callable[..., dict[str, Any]]
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}[reply]"
HOOKS = {"INGLENOOK_TEST_HOOKS": "1"}


@pytest.fixture(scope="module")
def endless(scripted_model: Scripted) -> str:
    return str(scripted_model(["more", " and"], template=TEMPLATE, tail="[reply]", loop=True, context=8192)["path"])


class Running:
    """A started command line whose children are watched."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words, "--threads", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
        )
        self.children: list[psutil.Process] = []

    def lines_until(self, kind: str) -> None:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if json.loads(line)["type"] == kind:
                self.children = psutil.Process(self.process.pid).children(recursive=True)
                return
        assert self.process.stderr is not None
        pytest.fail(f"no {kind}: {self.process.stderr.read().decode()}")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out.decode(), err.decode()

    def assert_no_child_left(self) -> None:
        assert self.children
        gone, alive = psutil.wait_procs(self.children, timeout=5)
        assert not alive
        assert len(gone) == len(self.children)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def make(*words: str, env: dict[str, str] | None = None) -> Running:
        started.append(Running(*words, env=env))
        return started[-1]

    yield make
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


def test_ctrl_c_in_an_answer(start: Callable[..., Running], endless: str) -> None:
    running = start("chat", "-m", endless, "-p", "hi", "--json")
    running.lines_until("token")
    running.process.send_signal(signal.SIGINT)
    status, out, err = running.end()
    last = json.loads(out.splitlines()[-1])
    assert (status, err) == (130, "")
    assert (last["type"], last["finish_reason"]) == ("done", "cancelled")
    assert last["text"].startswith("more")
    running.assert_no_child_left()


def test_ctrl_c_while_loading(start: Callable[..., Running], starter_model: Path) -> None:
    slow = {**HOOKS, "INGLENOOK_TEST_SLOW_LOAD_S": "20"}
    running = start("chat", "-m", str(starter_model), "-p", "hi", "--json", env=slow)
    running.lines_until("load_progress")
    begin = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    status, out, err = running.end()
    assert time.monotonic() - begin < 5
    assert (status, err) == (130, "")
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "cancelled"
    running.assert_no_child_left()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_line_takes_its_worker_along(
    start: Callable[..., Running], endless: str, end: signal.Signals
) -> None:
    running = start("chat", "-m", endless, "-p", "hi", "--json")
    running.lines_until("token")
    running.process.send_signal(end)
    running.end()
    running.assert_no_child_left()


def test_a_reader_that_goes_away(start: Callable[..., Running], endless: str) -> None:
    running = start("chat", "-m", endless, "-p", "hi", "--json")
    running.lines_until("token")
    assert running.process.stdout is not None
    running.process.stdout.close()
    assert running.process.stderr is not None
    assert running.process.wait(timeout=20) == 141
    assert running.process.stderr.read() == b""
    running.assert_no_child_left()


@pytest.mark.parametrize("how", ["abort", "segv", "kill"])
@pytest.mark.parametrize("where", ["load", "stream"])
def test_a_worker_that_dies(endless: str, where: str, how: str) -> None:
    env = {**HOOKS, "INGLENOOK_TEST_CRASH": f"{where}:{how}"}
    done = run("chat", "-m", endless, "-p", "hi", "--json", env=env)
    assert done.returncode == 11
    error = events(done)[-1]["error"]
    assert error["code"] == "worker_died"
    assert error["message"]
    plain = run("chat", "-m", endless, "-p", "hi", env=env)
    assert plain.returncode == 11
    assert error["message"] in plain.stderr


def test_native_prints_do_not_reach_the_answer(endless: str) -> None:
    env = {**HOOKS, "INGLENOOK_TEST_NATIVE_PRINT": "native words\n"}
    done = run("chat", "-m", endless, "-p", "hi", "--max-tokens", "3", env=env)
    assert (done.returncode, done.stdout) == (0, "more andmore\n")


def test_neither_qt_nor_llama_cpp_is_imported() -> None:
    code = (
        "import sys; from engine import cli\n"
        "assert cli.main(['chat', '-p', 'hi', '--max-tokens', '2', '--threads', '1']) == 0\n"
        "assert cli.main(['doctor']) == 0\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('PySide6', 'shiboken6', 'llama_cpp', 'desktop')]\n"
        "sys.exit(f'imported: {bad}' if bad else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_version_is_quick() -> None:
    begin = time.monotonic()
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("inglenook ")
    assert time.monotonic() - begin < 2


# ------------------------------------------------------------------ in a terminal


class Terminal:
    """The command line in a pseudo-terminal."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        import pty

        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execvpe(COMMAND[0], [*COMMAND, *words, "--threads", "1"], environment({**(env or {}), "TERM": "xterm"}))
        self.seen = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end inside a character

    def expect(self, text: str, timeout_s: float = 30) -> str:
        """What was printed up to and with `text`."""
        import select

        end = time.monotonic() + timeout_s
        while text not in self.seen:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{text!r} did not come: {self.seen!r}")
            try:
                self.seen += self.decoder.decode(os.read(self.descriptor, 65536))
            except OSError:
                raise AssertionError(f"ended before {text!r} came: {self.seen!r}") from None
        before, found, self.seen = self.seen.partition(text)
        return before + found

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def wait_for_keys(self, timeout_s: float = 30) -> None:
        """Return when the prompt sleeps until a key comes: a Ctrl+C between a key's echo and that sleep is lost."""
        asleep, end = 0, time.monotonic() + timeout_s
        while asleep < 5:
            assert time.monotonic() < end, f"it never waited: {self.seen!r}"
            asleep = asleep + 1 if psutil.Process(self.pid).status() == psutil.STATUS_SLEEPING else 0
            time.sleep(0.02)

    def close(self) -> int:
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end and os.read(self.descriptor, 65536):
                pass
        except OSError:  # the other side is closed
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)


def test_a_chat_in_a_terminal(scripted_model: Scripted) -> None:
    model = scripted_model(["Good", " day"], template=TEMPLATE, tail="[reply]", probes=[("P", ["password"])])
    terminal = Terminal("chat", "-m", str(model["path"]))
    terminal.expect("/exit")
    terminal.expect("› ")
    terminal.type("password\n")
    assert "P+Good day" in terminal.expect("tok/s")
    terminal.expect("› ")
    terminal.type("/new\n")
    terminal.expect("› ")
    terminal.type("und ü 模\n")
    assert "P-Good day" in terminal.expect("tok/s")
    terminal.expect("› ")
    terminal.type("\x04")
    assert terminal.close() == 0


def test_ctrl_c_in_a_terminal_stops_only_the_answer(endless: str) -> None:
    slow = {**HOOKS, "INGLENOOK_TEST_SLOW_TOKEN_S": "0.05"}
    terminal = Terminal("chat", "-m", endless, env=slow)
    terminal.expect("› ")
    for _ in range(2):
        terminal.type("hi\n")
        terminal.expect("more and")
        terminal.type("\x03")
        terminal.expect("cancelled")
        terminal.expect("› ")
    terminal.type("half a line")
    terminal.expect("half a line")
    terminal.wait_for_keys()
    terminal.type("\x03")  # at the prompt it clears the line
    terminal.expect("› ")
    terminal.type("/exit\n")
    assert terminal.close() == 0


def test_a_model_cannot_send_escapes_to_a_terminal(scripted_model: Scripted) -> None:
    model = scripted_model(["a", b"\x1b", "]0;", b"\x07", "b"], template=TEMPLATE, tail="[reply]")
    terminal = Terminal("chat", "-m", str(model["path"]), "-p", "hi")
    printed = terminal.expect("\ufffdb")
    assert "a\ufffd]0;\ufffdb" in printed
    assert "\x1b]" not in printed
    terminal.close()
