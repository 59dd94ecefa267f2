"""llama.cpp itself in this process, and what it finds on this computer: the first thing that a worker tells.

It needs little else, so it is told before the rest of the worker is imported: whoever only asks for the devices has
the answer a quarter of a second sooner.
"""

from __future__ import annotations

import os
import sys

from engine import backend_words, events
from engine.worker import backends, devices, llama, native_log
from engine.worker.channel import Channel


class Native:
    """llama.cpp with its log and its backends. Made once, before anything else.

    Attributes:
        log: takes all that llama.cpp says.

    Raises:
        BackendMissing: llama.cpp cannot be used on this processor.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.log = native_log.NativeLog(self._line)
        backends.check_compiled_for()
        self._library = llama.Library(self.log)
        self.loaded = backends.load()

    def hello(self, protocol_version: int, engine_version: str) -> events.Hello:
        """Who we are, and what ggml found on this computer."""
        for problem in devices.add_rpc_servers():
            self._line("warning", problem)
        for problem in self.loaded.problems:
            self._line("warning", problem)
        for problem in backend_words.broken(self.loaded.add_ons):
            self._line("warning", problem)
        if llama.amx_is_unsafe():
            self._line("info", "AMX is in this build of llama.cpp but is not used: see engine/worker/llama.py")
        return events.Hello(
            protocol=protocol_version,
            engine=engine_version,
            pid=os.getpid(),
            llama_cpp=llama.version(),
            system_info=llama.system_info(),
            backends=devices.backends(),
            devices=devices.devices(),
            cpu_module=self.loaded.cpu_module,
            add_ons=tuple(self.loaded.add_ons),
        )

    def _line(self, level: str, line: str) -> None:
        """Every line goes to stderr, which the parent keeps; what should be looked at is an event too."""
        sys.stderr.write(line + "\n")
        if level == "warning":
            self._channel.send(events.Log(level="warning", text=line))
        elif level == "error":
            self._channel.send(events.Log(level="error", text=line))
