"""Every record survives the wire; a hostile line raises one of the named errors and nothing else."""

from __future__ import annotations

import io
import json
import typing

import msgspec
import pytest

from engine import events
from engine.engine_options import Adapter
from engine.message import ErrorInfo, PromptMessage, Reread, Timings, Usage
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.process import read_lines

HARD = 'line\nbreak\r\x00\x1b[31m "quoted" \\ \u2028\u2029 \u0085 é 漢字 👩‍👩‍👧 \ufffd {"type":"done"}\n'

TEMPLATE = events.TemplateInfo(source="guess", name="chatml", note=HARD, thinking_tag="think", supports_system=False)
MODEL = events.ModelInfo(
    path=HARD,
    name="m",
    architecture="llama",
    quantization="Q4_1",
    n_params=2**40,
    size_bytes=2**45,
    n_ctx=8192,
    n_ctx_train=2**20,
    n_slots=4,
    n_vocab=262_144,
    n_layer=30,
    n_embd=576,
    n_batch=2048,
    n_ubatch=512,
    n_threads=2,
    n_gpu_layers=31,
    template=TEMPLATE,
    eog_tokens=(0, 2),
    buffers={"CPU model": 98_000_000},
    backends=("CPU", "RPC"),
    load_s=0.5,
    warnings=(HARD,),
)
ERROR = ErrorInfo(code="worker_died", message=HARD, hint="h", details={"log": [HARD], "exit_code": -6, "n": None})
DETAIL = events.TokenDetail(
    6,
    2.5,
    (events.Candidate(6, b"\xf0\x9f", -0.1), events.Candidate(7, HARD.encode(), -1000.0)),
    (events.Stage("dry", 9, 3), events.Stage("top_k", 2)),
    0.5,
    0.25,
    0.75,
)
EVENTS = [
    events.Hello(protocol=1, engine="0.1", pid=7, devices=(events.Device("CPU", HARD, "cpu", "CPU", 1, 2**40),)),
    events.LoadProgress(request_id="1", fraction=0.25, stage="context"),
    events.Loaded(request_id="1", model=MODEL),
    events.Unloaded(request_id="2"),
    events.PromptProgress(request_id="3", n_prompt=9, n_cached=4, n_done=5, elapsed_s=0.1),
    events.Token(request_id="3", index=0, token_id=5, piece=bytes(range(256)), text=HARD, logprob=-0.5, time_s=1.5),
    events.Token(request_id="3", index=1, token_id=6, piece=b"\xf0\x9f", channel="reasoning"),
    events.Token(request_id="3", index=2, token_id=6, piece=b"", detail=DETAIL),
    events.PromptTrace(
        request_id="3",
        tokens=bytes(range(256)),
        pieces=(b"\xf0\x9f", HARD.encode()),
        owners=b"\xff\xff",
        reread=Reread(index=3, cause="changed", n_tokens=4, old=HARD),
        n_forced=2,
        exact=False,
    ),
    events.Done(
        request_id="3",
        text=HARD,
        finish_reason="cancelled",
        usage=Usage(9, 2, 4),
        timings=Timings(ttft_s=0.1, decode_tps=None),
        reasoning=HARD,
        seed=2**32 - 1,
        notes=(HARD,),
    ),
    events.Error(request_id="3", error=ERROR),
    events.Memory(rss_bytes=2**40, kv_used_cells=5, kv_total_cells=8192),
    events.Log(level="warning", text=HARD),
    events.Tokenized(request_id="4", tokens=(1, 2), pieces=(b"\xff", b""), prompt=HARD, n_dropped=1),
    events.AdaptersSet(request_id="9", adapters=(Adapter(HARD, 0.5), Adapter("/a", -1.0))),
    events.Embedded(
        request_id="10", vectors=bytes(range(256)), n_embd=4, n_tokens=(3, 5), pooling="mean", normalized=True
    ),
    events.ContextLedger(
        request_id="11",
        spans=(events.LedgerSpan("system", 0, 5),),
        n_prompt=5,
        n_whole=9,
        n_ctx=256,
        notes=(HARD,),
    ),
    events.BenchProgress(request_id="8", stage="decode", n_done=3, n_total=2**40),
    events.Benched(request_id="8", n_prefilled=512, prefill_s=0.5, n_decoded=7, decode_s=0.1, llama_cpp=HARD),
    events.KvMap(
        n_ctx=2**40,
        n_used=300,
        sequences=(
            events.KvSequence(0, HARD, n_cells=300, n_shared=20, n_listed=3, moved_from=5, n_moved=9, n_saved=7),
            events.KvSequence(3, active=True),
        ),
    ),
    events.Pong(request_id="5"),
]
REQUESTS = [
    protocol.Load(
        id="1",
        path=HARD,
        n_ctx=4096,
        n_gpu_layers=-1,
        chat_template=HARD,
        use_mmap=False,
        adapters=(Adapter(HARD, 0.5),),
        embeddings=True,
    ),
    protocol.Generate(
        id="2",
        messages=(PromptMessage("system", HARD), PromptMessage("assistant", "", HARD, "think", False)),
        sampling=SamplingParams(stop=(HARD,), seed=0, logit_bias={5: -1e9}, max_tokens=3),
        continue_last=True,
        overflow="drop_oldest",
    ),
    protocol.Generate(id="3", prompt=HARD),
    protocol.Generate(id="14", prompt=HARD, trace=True, forced=(3, 0), n_draws=2, n_xtc_draws=1),
    protocol.Stop(id="4", target="2"),
    protocol.Tokenize(id="5", text=HARD, special=True),
    protocol.Ledger(id="11", messages=(PromptMessage("user", HARD),), overflow="roll", max_tokens=7, key="k"),
    protocol.Prioritize(id="12", target="2", priority=3),
    protocol.Forget(id="13", cache_key=HARD),
    protocol.Watch(id="14", interval_s=0.25),
    protocol.SetAdapters(id="9", adapters=(Adapter(HARD, 0.0),)),
    protocol.Embed(id="10", texts=(HARD, ""), pooling="none", normalize=False),
    protocol.Unload(id="6"),
    protocol.Bench(id="8", n_parallel=4, n_prompt=16, n_generate=4, logprobs=False),
    protocol.Ping(id="7"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_event_survives_the_wire(event: events.Event) -> None:
    line = protocol.encode(event)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert protocol.decode_event(line) == event


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_request_survives_the_wire(request_: protocol.Request) -> None:
    line = protocol.encode(request_)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert protocol.decode_request(line) == request_


def test_no_record_is_left_out() -> None:
    assert {type(e) for e in EVENTS} == set(typing.get_args(events.WorkerEvent))
    assert {type(r) for r in REQUESTS} == set(typing.get_args(protocol.AnyRequest))


HOSTILE = [
    b"",
    b"\n",
    b"null",
    b"[]",
    b"{}",
    b"42",
    b'"token"',
    b"{" * 100_000,
    b"[" * 100_000,
    b'{"type":' * 50_000,
    b"\xff\xfe\x00",
    b'{"type":"token"}',
    b'{"type":"no_such"}',
    b'{"type":"token","index":"0","token_id":1,"piece":"","text":""}',
    b'{"type":"token","index":0,"token_id":1,"piece":"not base64!","text":""}',
    b'{"type":"done","text":"x","finish_reason":"never","usage":{},"timings":{}}',
    b'{"type":"log","level":"info","text":"\xff"}',
    b'{"type":"log","level":"info","text":"\\ud800"}',
    b'{"type":"memory","rss_bytes":1e400}',
    b'{"type":"memory","rss_bytes":NaN}',
    b'{"type":"worker_exited","expected":true}',
    b'{"type":"generate","id":5}',
    b'{"type":"generate","id":"1","sampling":{"temperatur":1}}',
    b'{"type":"load","id":"1"}',
    b'{"type":"pong"} {"type":"pong"}',
    b'{"type":"pong"',
    b"llama_model_loader: loaded meta data",
]


@pytest.mark.parametrize("decode", [protocol.decode_event, protocol.decode_request])
@pytest.mark.parametrize("line", HOSTILE, ids=lambda x: repr(x[:40]))
def test_hostile_line_is_refused(decode: typing.Callable[[bytes], object], line: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
        decode(line)


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    record = json.loads(protocol.encode(events.Pong(request_id="1")))
    assert protocol.decode_event(json.dumps(record | {"new": [1]}).encode()) == events.Pong(request_id="1")


def test_lines_are_bounded() -> None:
    stream = io.BytesIO(b"short\n" + b"x" * 1_000_000 + b"\n" + b"y" * 9 + b"\n" + b"z" * 10 + b"\n" + b"tail")
    assert list(read_lines(stream, 9)) == [b"short\n", None, b"y" * 9 + b"\n", None, b"tail"]


def test_a_line_that_never_ends_is_not_held() -> None:
    class Endless(io.RawIOBase):
        left = 64 * 1024 * 1024
        largest = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None and size > 0
            self.largest = max(self.largest, size)
            n = min(size, self.left)
            self.left -= n
            return b"x" * n

    stream = Endless()
    assert list(read_lines(typing.cast(typing.Any, stream), 1000)) == [None]
    assert stream.largest <= 1 << 16
