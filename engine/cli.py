"""The command line: `inglenook chat`, `embed`, `doctor`, `fit`, `trace`, `--version`, `--self-test`.

Answers and events go to standard output, everything else to standard error. An `EngineError` ends in one sentence and a
hint, never in a traceback. No Qt is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import engine
from engine import cli_arguments
from engine.cli_output import INTERRUPTED, READER_GONE, JsonOutput, exit_status, force_utf8, write_error
from engine.errors import Cancelled, EngineError
from engine.paths import storage_error


def wants_cli(argv: Sequence[str]) -> bool:
    """True if these arguments (without the program's name) are answered here and open no window."""
    return bool(argv) and argv[0] in (*cli_arguments.COMMANDS, *cli_arguments.FLAGS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status (`cli_output.EXIT_STATUS`)."""
    words = list(sys.argv[1:] if argv is None else argv)
    force_utf8()
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _silence_stdout()
        return READER_GONE
    except OSError as error:
        if error.filename is not None:  # not from writing the output: a bug
            raise
        _silence_stdout()
        return _report(storage_error(error, "The output cannot be written"), as_json=False)
    except KeyboardInterrupt:
        if "--json" in words:
            JsonOutput().error(Cancelled("Interrupted"))
        return INTERRUPTED


def _run(words: list[str]) -> int:
    try:
        options = cli_arguments.parse(words)
        if options.version:
            sys.stdout.write(f"inglenook {engine.__version__}\n")
            if not options.check:
                return 0
            from engine import cli_updates

            return cli_updates.run()
        if options.self_test:
            from engine import cli_self_test

            return cli_self_test.run()
        if options.command == "doctor":
            from engine import cli_doctor

            return cli_doctor.doctor(options.json)
        if options.command == "chat":
            from engine import cli_chat

            return cli_chat.run(options)
        if options.command == "embed":
            from engine import cli_embed

            return cli_embed.run(options)
        if options.command == "fit":
            from engine.cli_look import EarlyLook

            early = None if options.device or options.ram is not None else EarlyLook()
            from engine import cli_fit

            return cli_fit.run(options, early)
        if options.command == "bench":
            from engine import cli_bench

            return cli_bench.run(options)
        if options.command == "trace":
            from engine import cli_trace

            return cli_trace.run(options)
        if options.command == "models":
            from engine import cli_models

            return cli_models.run(options)
        cli_arguments.build_parser().print_help()
        return 0
    except EngineError as error:
        return _report(error, "--json" in words)
    except SystemExit as end:  # argparse after --help
        return end.code if isinstance(end.code, int) else 1


def _report(error: EngineError, as_json: bool) -> int:
    if as_json:
        JsonOutput().error(error)
    else:
        write_error(error)
    return exit_status(error)


def _silence_stdout() -> None:
    """What is left in the buffers goes nowhere, so that the interpreter does not complain at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
