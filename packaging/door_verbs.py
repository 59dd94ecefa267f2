"""The verbs of the door: run, test, check, fix, package."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import door_checks
import door_env
import door_package
import door_system
from door_backend import BACKENDS
from door_steps import Place, StepError, find_place, say

NEWEST_TRIED = (3, 13)
MAX_TEST_PROCESSES = 6
"""More than this many test processes, each with a model process beside it, only wait for each other."""

MOST_LOOKED_AT_AGAIN = 5
"""More failures than this are no accident of the machine's load."""

EPILOG = """\
Words after the verb that are not listed here go on to the program: to the window for run, to pytest for test.
The environment lies in .venv; what may be made again (the built llama.cpp, the starter model) in a cache folder
of yours, or where INGLENOOK_DEV_CACHE says. INGLENOOK_WHEEL_INDEX names an index with prebuilt CUDA wheels."""


def parser() -> argparse.ArgumentParser:
    """The command line of dev.py."""
    top = argparse.ArgumentParser(
        prog="dev.py",
        description="The one door to Inglenook's sources.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_backend(top, "auto")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, words in (
        ("run", "set everything up if needed, then open the window with the starter model"),
        ("test", "run the tests"),
        ("check", "run the formatter, the linter, the type checker, the import rules and the checks of the documents"),
        ("fix", "format, and mend what the linter can mend"),
        ("package", "make what this system installs, in dist/"),
    ):
        verb = verbs.add_parser(
            name, help=words, description=words.capitalize(), add_help=name != "test", allow_abbrev=False
        )
        if name == "package":
            door_package.add_options(verb)
        else:
            add_backend(verb, argparse.SUPPRESS)
    return top


def add_backend(to: argparse.ArgumentParser, default: str) -> None:
    """Add the option that may stand before and after the verb."""
    words = "which llama.cpp to build (default: auto, what fits this machine)"
    to.add_argument("--backend", choices=["auto", *BACKENDS], default=default, help=words)


def main(argv: Sequence[str]) -> int:
    """Run one verb; returns the exit status and never raises for what the machine lacks."""
    options, rest = parser().parse_known_args(list(argv))
    rest = [word for index, word in enumerate(rest) if not (index == 0 and word == "--")]
    if rest and options.verb not in {"run", "test"}:
        say(f"{options.verb} takes no {rest[0]!r}; see dev.py {options.verb} -h")
        return 2
    if sys.version_info[:2] > NEWEST_TRIED:
        say(f"Python {sys.version_info[0]}.{sys.version_info[1]} is newer than what this was tried with (3.11 to 3.13)")
    place = find_place()
    try:
        if options.verb == "run":
            return run(place, options.backend, rest)
        if options.verb == "test":
            return test(place, options.backend, rest)
        if options.verb == "check":
            return check(place, options.backend)
        if options.verb == "fix":
            return fix(place, options.backend)
        return door_package.package(place, options)
    except StepError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("stopped; run it again to go on")
        return 130
    except OSError as error:
        say(f"{error.filename or 'a file'}: {error.strerror or error}; make it usable and run this again")
        return 1


def call(place: Place, command: Sequence[object], env: dict[str, str] | None = None) -> int:
    """Run a program in the checkout with our own terminal and return its exit status.

    Ctrl+C is for the program, which hears it too: a chat in the terminal stops an answer with it.
    """
    with subprocess.Popen([str(word) for word in command], cwd=place.root, env=env) as child:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                status = child.wait()
                return status if status >= 0 else 128 - status


def run(place: Place, backend: str, rest: Sequence[str]) -> int:
    """Set up what is missing, then chat: in a window, or in the terminal where no display is."""
    display = door_system.find_display(os.environ)
    door_env.ensure(place, door_env.Wanted(backend=backend, display=display))
    if display.exists:
        return call(place, [place.python, "-m", "desktop", *rest])
    say("no display here (neither DISPLAY nor WAYLAND_DISPLAY is set): chatting in the terminal")
    words = [word for word in rest if word != "--temp-home"]
    if not any(word == "--model" or word.startswith("--model=") for word in words):
        words = ["--model", "starter", *words]
    return call(place, [place.python, "-m", "engine", "chat", *words])


def test(place: Place, backend: str, rest: Sequence[str]) -> int:
    """Run the tests: first those that measure time, alone, then all others side by side."""
    door_env.ensure(place, door_env.Wanted(backend=backend, dev=True))
    env = {**os.environ, "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM") or "offscreen"}
    pytest = [place.python, "-m", "pytest"]
    if any(word in {"-h", "--help", "-m", "--co", "--collect-only"} or word.startswith("-n") for word in rest):
        return call(place, [*pytest, *rest], env)
    fresh = () if rest else ("--cache-clear",)
    alone = call(place, [*pytest, "-m", "serial", "-n", "0", *fresh, *rest], env)
    if alone not in {0, 5}:
        say("the tests that run alone (marked serial) failed; going on with the others")
    cores = os.cpu_count() or 1
    processes = min(cores, MAX_TEST_PROCESSES)
    # llama.cpp's threads wait for each other by spinning: with more of them than cores, everything takes three times
    # as long. So each test process may use its share of the cores.
    beside_env = {"OMP_THREAD_LIMIT": str(max(1, cores // processes)), "OMP_WAIT_POLICY": "PASSIVE", **env}
    beside = call(place, [*pytest, "-m", "not serial", "-n", processes, "--dist", "loadgroup", *rest], beside_env)
    if not rest and 1 in {alone, beside} and {alone, beside} <= {0, 1, 5}:
        return look_again(place, pytest, env)
    if alone not in {0, 5}:
        say("tests marked serial failed, see above")
        return alone
    if beside == 5 and alone == 0:
        return 0
    return beside


def look_again(place: Place, pytest: Sequence[object], env: dict[str, str]) -> int:
    """Run the few that failed once more, one after another with nothing beside them; say which passed then.

    That tells a broken program from a test that leans on the machine's speed. The second kind is a fault too, and is
    named at the very end, but it does not hide the result of thousands of others.
    """
    record = place.root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    try:
        failed = sorted(json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return 1
    if not failed or len(failed) > MOST_LOOKED_AT_AGAIN:
        return 1
    say(f"{len(failed)} failed; running what failed once more, alone")
    again = call(place, [*pytest, "-n", "0", "--last-failed", "--last-failed-no-failures", "none"], env)
    if again:
        return again
    for name in failed:
        say(f"FLICKERS: {name} failed beside the others and passed alone; mend it")
    return 0


def check(place: Place, backend: str) -> int:
    """Run every check, also after one has failed, and say at the end which failed."""
    door_env.ensure(place, door_env.Wanted(backend=backend, dev=True))
    failed: list[str] = []
    for name, command in door_checks.commands(place):
        say(f"check: {name}")
        if call(place, command):
            failed.append(name)
    say("check: documents")
    troubles = door_checks.documents(place.root)
    for trouble in troubles:
        print(trouble)
    if troubles:
        failed.append("documents")
    say(f"check failed: {', '.join(failed)}" if failed else "check: all passed")
    return 1 if failed else 0


def fix(place: Place, backend: str) -> int:
    """Format, and mend what the linter can mend by itself."""
    door_env.ensure(place, door_env.Wanted(backend=backend, dev=True))
    mended = call(place, [place.python, "-m", "ruff", "check", "--fix", "."])
    formatted = call(place, [place.python, "-m", "ruff", "format", "."])
    return mended or formatted
