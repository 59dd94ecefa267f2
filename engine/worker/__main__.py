"""The worker process: `python -m engine.worker`.

A reader thread takes requests from standard input, answers a ping at once and sets stop flags at once. The main
thread owns the model and does all the rest. The end of standard input ends the process.

See `hooks.py` for the faults that tests can ask for.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from engine import __version__, events
from engine.errors import BackendMissing, EngineError, InvalidRequest
from engine.frozen import reason
from engine.message import Timings, Usage
from engine.worker import crumbs, protocol
from engine.worker.channel import Channel, take_standard_streams
from engine.worker.inbox import Inbox, Job
from engine.worker.process import is_frozen, read_lines, tie_to_parent

if TYPE_CHECKING:
    pass

EXIT_NO_BACKEND = 3
#: after the end of input, native code gets this long to come back
_GRACE_S = 2.0


def main() -> int:
    """Run a worker until its input ends. Returns the exit code."""
    requests, channel = take_standard_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the parent's business
    tie_to_parent()
    crumbs.open_box()
    _set_native_habits()
    try:
        _check_processor()
        from engine.worker.greeting import Native

        native = Native(channel)
    except BackendMissing as error:
        channel.fail("", error)
        return EXIT_NO_BACKEND
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        channel.fail("", _missing(error))
        return EXIT_NO_BACKEND
    channel.send(native.hello(protocol.PROTOCOL_VERSION, __version__))
    from engine.worker.owner import Owner  # a quarter of a second, in which the greeting is read

    owner = Owner(channel, native)
    reader = threading.Thread(target=_read, args=(requests, channel, owner.inbox), name="requests", daemon=True)
    reader.start()
    gc.freeze()  # what is alive now stays; collections then have little to look at
    owner.run()
    return 0


def _set_native_habits() -> None:
    """Set what the native libraries read from the environment when they are loaded.

    GGML_NO_BACKTRACE: an abort of ggml would start a debugger, where there is one, and take seconds to die.

    GOMP_SPINCOUNT: at each of the about thousand barriers of a token GCC's OpenMP spins for up to a millisecond before
    it sleeps. Where another program uses a core too, that cost nine tenths of the speed (measured on 2 cores: 2.7 in
    place of 20 tokens a second); a short spin costs nothing where the cores are free.
    """
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")


def _check_processor() -> None:
    """Before any native library is loaded: on an older processor the first instruction that it lacks would be the end.

    Raises:
        BackendMissing: it lacks something, by name.
    """
    from engine import cpu_flags

    lacks = cpu_flags.below_floor()
    if lacks:
        raise BackendMissing(lacks, hint="Use Inglenook on a newer computer.", details={})


def _missing(error: BaseException) -> BackendMissing:
    error = reason(error)
    return BackendMissing(
        "llama.cpp cannot be loaded on this computer",
        hint="A part of Inglenook is missing or damaged: install it again."
        if is_frozen()
        else "Run `python3 packaging/dev.py run` again: it builds llama.cpp for this computer.",
        details={"error": f"{type(error).__name__}: {error}"},
    )


def _read(requests: BinaryIO, channel: Channel, inbox: Inbox) -> None:
    """The reader thread."""
    for line in read_lines(requests, protocol.MAX_LINE_BYTES):
        if line is None:
            channel.fail("", InvalidRequest("a request of more than 64 MiB was refused"))
        elif line.strip():
            _take(line, channel, inbox)
    inbox.close()
    time.sleep(_GRACE_S)
    os._exit(0)  # the main thread is stuck in native code


def _take(line: bytes, channel: Channel, inbox: Inbox) -> None:
    try:
        request = protocol.decode_request(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        channel.fail(_id_of(line), InvalidRequest(f"not a request: {error}"))
        return
    if isinstance(request, protocol.Ping):
        channel.send(events.Pong(request_id=request.id))
    elif isinstance(request, protocol.Stop):
        job = inbox.stop(request.target)
        if job is not None:
            channel.send(_cancelled(job))
    elif not inbox.put(request):
        channel.fail("", InvalidRequest(f"a request with the id {request.id!r} is still unanswered"))


def _cancelled(job: Job) -> events.Event:
    """The end of a request that was stopped before anything was done for it."""
    if isinstance(job.request, protocol.Generate):
        waited = time.perf_counter() - job.arrived_s
        return events.Done(
            request_id=job.request.id,
            text="",
            finish_reason="cancelled",
            usage=Usage(),
            timings=Timings(queue_s=waited),
            seed=job.request.sampling.seed or 0,
        )
    from engine.errors import Cancelled
    from engine.worker.channel import info

    return events.Error(request_id=job.request.id, error=info(Cancelled("Stopped before it began")))


def _id_of(line: bytes) -> str:
    """The id of a line that is no proper request, so that its sender can be told; "" if there is none."""
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


if __name__ == "__main__":
    try:
        code = main()
    except EngineError as error:
        print(f"{error.code}: {error}", file=sys.stderr)  # noqa: T201
        code = 1
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # no destructors of native libraries: some hang or crash at exit
