"""A scripted stand-in for the worker: the same protocol, in a real process, without llama.cpp.

    python -m engine.worker.fake [--script FILE.json | '{...}' | NAME]

For faults and screenshots. Everything that checks answers uses a real model. Counts and times are measured here as the
real worker measures them, never made up: a script says what to do, the clock says how long it took.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath

import msgspec

from engine import events
from engine.errors import EngineError
from engine.message import ErrorInfo
from engine.worker import crumbs, fake_ledger, protocol
from engine.worker.fake_answer import Generation, Job, Output, StopAsked, rss_bytes
from engine.worker.fake_script import ENV, Answer, Fault, Script, cut, from_env, load_script
from engine.worker.process import read_lines, tie_to_parent

_SIGNALS = {"sigsegv": "SIGSEGV", "sigkill": "SIGKILL", "sigill": "SIGILL", "sigbus": "SIGBUS"}
_FOREVER_S = 1_000_000.0
_CANCELLED = ErrorInfo(code="cancelled", message="Stopped")


class FakeWorker:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.out = Output()
        self.jobs: dict[str, Job] = {}
        self.n_answers = 0
        self.n_ctx = 0  # 0: no model
        self.watched = False
        self.lock = threading.Lock()

    # ------------------------------------------------------------------ process

    def run(self) -> int:
        script = self.script
        if script.ignore_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in script.stderr:
            _say(line)
        for line in script.before_hello:
            self.out.raw(line.encode() + b"\n")
        time.sleep(script.hello_delay_s)
        if script.start_fault is not None:
            self.fail(script.start_fault)
        if script.hello_error is not None:
            self.out.send(events.Error(error=script.hello_error))
            return 1
        if script.hello:
            self.out.send(
                events.Hello(
                    protocol=script.protocol,
                    engine="fake",
                    pid=os.getpid(),
                    llama_cpp="scripted",
                    backends=("CPU",),
                    devices=(events.Device("CPU", "scripted", "cpu", "CPU"),),
                )
            )
        for data in read_lines(sys.stdin.buffer, protocol.MAX_LINE_BYTES):
            self.take(data)
            while self.out.hung:
                time.sleep(_FOREVER_S)
        while script.ignore_eof:
            time.sleep(_FOREVER_S)
        return 0

    def take(self, line: bytes | None) -> None:
        try:
            request = protocol.decode_request(line or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = ErrorInfo(code="invalid_request", message="A line was not a request")
            self.out.send(events.Error(error=error))
            return
        match request:
            case protocol.Ping():
                if self.script.pong:
                    self.out.send(events.Pong(request_id=request.id))
            case protocol.Stop():
                with self.lock:
                    job = self.jobs.get(request.target)
                if job is not None:
                    job.stop()
            case protocol.Load():
                self.start(
                    Job(request, stoppable=not self.script.load.ignore_stop), lambda job: self.load(job, request)
                )
            case protocol.Generate():
                with self.lock:
                    answer = self.script.answers[min(self.n_answers, len(self.script.answers) - 1)]
                    self.n_answers += 1
                self.start(
                    Job(request, stoppable=not answer.ignore_stop), lambda job: self.generate(job, request, answer)
                )
            case protocol.Unload():
                with self.lock:
                    running = list(self.jobs.values())
                    self.n_ctx = 0
                for job in running:
                    job.stop()
                self.out.send(events.Unloaded(request_id=request.id))
            case protocol.Ledger():
                self.out.send(self.ledger(request))
            case protocol.Watch():
                self.watched = request.interval_s > 0
            case protocol.SetAdapters():
                self.out.send(events.AdaptersSet(request_id=request.id, adapters=request.adapters))
            case protocol.Embed():
                n_tokens = tuple(len(cut(text)) for text in request.texts)
                vectors = struct.pack("<2f", 0.6, 0.8) * (len(n_tokens) if request.pooling != "none" else sum(n_tokens))
                kind = "mean" if request.pooling == "own" else request.pooling
                self.out.send(
                    events.Embedded(
                        request_id=request.id,
                        vectors=vectors,
                        n_embd=2,
                        n_tokens=n_tokens,
                        pooling=kind,
                        normalized=request.normalize,
                    )
                )
            case protocol.Tokenize():
                self.out.send(_tokenized(request))

    def start(self, job: Job, work: Callable[[Job], None]) -> None:
        def run() -> None:
            try:
                work(job)
            except StopAsked:
                self.out.send(events.Error(request_id=job.request.id, error=_CANCELLED))
            finally:
                with self.lock:
                    self.jobs.pop(job.request.id, None)

        with self.lock:
            self.jobs[job.request.id] = job
        threading.Thread(target=run, daemon=True).start()

    def fail(self, fault: Fault) -> None:
        """Let a fault happen. Never returns."""
        for line in fault.stderr:
            _say(line)
        match fault.kind:
            case "abort":
                os.abort()
            case "exit":
                os._exit(fault.exit_code)
            case "raise":
                _say("Traceback (most recent call last):\nRuntimeError: scripted failure")
                os._exit(1)
            case "hang":
                self.out.hung = True
                time.sleep(_FOREVER_S)
            case "silence":
                time.sleep(_FOREVER_S)
            case "close":
                self.out.close()
                time.sleep(_FOREVER_S)
            case kind if kind in _SIGNALS:
                number = getattr(signal, _SIGNALS[kind], None)
                if os.name == "posix" and number is not None:
                    os.kill(os.getpid(), number)
                    time.sleep(_FOREVER_S)
                ctypes.string_at(0)
            case kind:
                raise ValueError(f"unknown fault {kind!r}")

    # ------------------------------------------------------------------ requests

    def load(self, job: Job, request: protocol.Load) -> None:
        plan = self.script.load
        for step in range(plan.steps + 1):
            fraction = step / plan.steps
            crumbs.note("weights", fraction)
            job.sleep_until(job.arrival + plan.seconds * fraction)
            if plan.fault is not None and fraction >= plan.fault.at:
                self.fail(plan.fault)
            self.out.send(events.LoadProgress(request_id=request.id, fraction=fraction))
        if plan.error is not None:
            self.out.send(events.Error(request_id=request.id, error=plan.error))
            return
        self.n_ctx = request.n_ctx or plan.n_ctx
        crumbs.loaded(self.n_ctx)
        self.out.send(events.Loaded(request_id=request.id, model=self.model(request, time.monotonic() - job.arrival)))
        self.memory(0)

    def model(self, request: protocol.Load, load_s: float) -> events.ModelInfo:
        return events.ModelInfo(
            path=request.path,
            name=PurePath(request.path).stem,
            architecture="llama",
            quantization="Q4_1",
            n_params=134_515_008,
            size_bytes=98_000_000,
            n_ctx=self.n_ctx,
            n_ctx_train=self.script.load.n_ctx,
            n_slots=request.n_slots,
            n_vocab=49_152,
            n_layer=30,
            n_embd=576,
            n_batch=request.n_batch,
            n_ubatch=request.n_ubatch,
            n_threads=request.n_threads or 1,
            n_threads_batch=request.n_threads_batch or 1,
            adapters=request.adapters,
            embeddings=request.embeddings,
            n_gpu_layers=0,
            template=events.TemplateInfo(source="file", thinking_tag="think"),
            eog_tokens=(0, 2),
            kv_bytes=self.n_ctx * 23_040,
            backends=("CPU",),
            load_s=load_s,
        )

    def ledger(self, request: protocol.Ledger) -> events.Event:
        if not self.n_ctx:
            error = ErrorInfo(code="model_not_loaded", message="No model is loaded")
            return events.Error(request_id=request.id, error=error)
        try:
            return fake_ledger.ledger(request, self.n_ctx)
        except EngineError as error:
            return events.Error(request_id=request.id, error=ErrorInfo(error.code, error.message, error.hint))

    def generate(self, job: Job, request: protocol.Generate, answer: Answer) -> None:
        if not self.n_ctx:
            error = ErrorInfo(code="model_not_loaded", message="No model is loaded")
            self.out.send(events.Error(request_id=request.id, error=error))
            return
        writing = Generation(self.out, job, request, answer, n_ctx=self.n_ctx, fail=self.fail)
        self.out.send(writing.run())
        self.memory(writing.n_prompt + writing.n_done)

    def memory(self, used_cells: int) -> None:
        self.out.send(events.Memory(rss_bytes=rss_bytes(), kv_used_cells=used_cells, kv_total_cells=self.n_ctx))
        if self.watched:
            held = (events.KvSequence(slot=0, n_cells=used_cells),) if used_cells else ()
            self.out.send(events.KvMap(n_ctx=self.n_ctx, n_used=used_cells, sequences=held))


def _tokenized(request: protocol.Tokenize) -> events.Tokenized:
    pieces = cut(request.text or "".join(m.content for m in request.messages))
    return events.Tokenized(
        request_id=request.id, tokens=tuple(range(len(pieces))), pieces=tuple(p.encode() for p in pieces)
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _no_core_dumps() -> None:
    try:
        import resource
    except ImportError:
        return
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="engine.worker.fake", description="A scripted worker.")
    parser.add_argument("--script", help=f"a file, JSON text or a name; otherwise from {ENV}")
    arguments = parser.parse_args(argv)
    tie_to_parent()
    crumbs.open_box()
    _no_core_dumps()
    script = load_script(arguments.script) if arguments.script else from_env()
    return FakeWorker(script).run()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads at work do not hold the end up
