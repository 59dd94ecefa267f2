"""The program's entry: decides by its arguments what to run, before Qt is imported.

CHILDREN are the processes that a packaged program starts beside itself, the words of the command line go to
`engine.cli`, and everything else opens the window.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

STARTED_S = time.time()
#: what `engine.cli` understands; these never import Qt
CLI_WORDS = frozenset({"bench", "chat", "doctor", "embed", "fit", "models", "trace", "--self-test", "--version", "-V"})
#: from source these are modules, started with `python -m`
CHILDREN = frozenset({"--worker", "--dry-run", "--check-format", "--kernel-rates", "--bandwidth", "--probe-backend"})

_COMMANDS = """\
in a terminal, without a window ("inglenook chat --help" says more of each):
  inglenook chat         ask a model
  inglenook models       search, list, download, import, verify and remove models
  inglenook embed        turn texts into vectors
  inglenook trace        say how an answer came about
  inglenook fit          say how a model fits this computer
  inglenook bench        measure how fast a model reads and writes
  inglenook doctor       check what this installation can do
  inglenook --self-test  load the starter model, answer, open a window, then end
  inglenook --version    say the version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run with these arguments (without the program's name). Gives the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args and args[0] in CHILDREN:
        return _child(args[0], args[1:])
    if args and args[0] in CLI_WORDS:
        from engine.cli import main as cli_main

        return int(cli_main(args) or 0)
    return _window(args)


def run() -> NoReturn:
    """Run with the arguments of this process and end it."""
    if len(sys.argv) < 2 or sys.argv[1] not in CHILDREN:
        sys.exit(main())
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # no destructors of native libraries: some hang or crash at exit


def _child(role: str, args: list[str]) -> int:
    if role == "--worker":
        from engine.worker.__main__ import main as worker_main

        return int(worker_main())
    if role == "--dry-run":
        from engine.worker.dry_run import main as dry_run_main

        return int(dry_run_main())
    if role == "--check-format":
        from engine.worker.format_check import main as check_main

        return int(check_main())
    if role == "--kernel-rates":
        from engine.worker.kernel_rates import main as kernels_main

        return int(kernels_main(args))
    if role == "--probe-backend":
        from engine.worker.backend_probe import main as probe_main

        return int(probe_main(args))
    from engine.fit.bandwidth import main as bandwidth_main

    return int(bandwidth_main(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inglenook",
        description="Chat with open-weight language models on your own computer.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_COMMANDS,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a GGUF file to load, or a link to a model")
    parser.add_argument("--model", default="", metavar="PATH", help='model to load: a path, a name, or "starter"')
    parser.add_argument("--home", type=Path, metavar="DIR", help="folder that holds everything")
    parser.add_argument("--temp-home", action="store_true", help="a throw-away profile, deleted at the end")
    parser.add_argument("--theme", choices=("system", "light", "dark"), default="", help="colours of the window")
    parser.add_argument("--debug", action="store_true", help="log more, and say what holds up the window")
    parser.add_argument("--self-test-window", action="store_true", help="open the window without a screen, then end")
    return parser


def _exists(file: str) -> bool:
    try:
        return Path(file).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return False


@contextlib.contextmanager
def _home(options: argparse.Namespace) -> Iterator[Path | None]:
    if options.temp_home:
        from engine.paths import temp_home

        with temp_home() as folder:
            yield folder
    else:
        yield options.home


def _window(args: Sequence[str]) -> int:
    from desktop.openings import argument
    from engine.models.links import is_link

    options = _parser().parse_args(args)
    files = tuple(argument(file) for file in options.files)
    missing = next((file for file in files if not is_link(file) and not _exists(file)), None)
    if missing is not None:
        shown = "".join(letter if letter.isprintable() else "?" for letter in missing)
        sys.stderr.write(f"inglenook: there is no command or file named {shown}\n")
        return 2
    from engine import cpu_flags

    lacks = cpu_flags.below_floor()
    if lacks:  # Qt would end the process with words of its own
        sys.stderr.write(f"inglenook: the window cannot open. {lacks}\n")
        return 1
    from desktop import display, signals

    signals.catch()
    if options.self_test_window:
        display.use_offscreen()
    problem = display.problem()
    if problem:
        sys.stderr.write(f"inglenook: the window cannot open: {problem} In a terminal: inglenook chat\n")
        return 1
    from desktop import app

    with _home(options) as home:
        return app.run(
            app.Options(
                home=home,
                model=options.model,
                theme=options.theme,
                debug=options.debug,
                self_test=options.self_test_window,
                files=files,
                started_s=STARTED_S,
            ),
            sys.argv[:1],
        )


if __name__ == "__main__":
    run()
