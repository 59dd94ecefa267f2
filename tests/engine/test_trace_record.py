"""The record of a trace, and its place beside the message."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_help import grow, one_transaction

from engine.events import Candidate, Marks, Stage, TokenDetail
from engine.message import PromptMessage, Reread
from engine.sampling import SamplingParams
from engine.store.chats import ChatStore
from engine.trace import Chunk, Step, Trace, TraceMessage

DETAIL = TokenDetail(
    5,
    1.5,
    (Candidate(5, b"\xe2", -0.5), Candidate(6, b" fox", -1.0)),
    (Stage("top_k", 40), Stage("dry", 40, 3)),
    0.6,
    0.1,
    0.7,
)
TRACE = Trace(
    message_id=3,
    chat_id=1,
    messages=(TraceMessage(0, PromptMessage("system", "Be brief.")), TraceMessage(2, PromptMessage("user", "Hi"))),
    tokens=b"\x01\0\0\0\x02\x01\0\0",
    pieces=(b"<|im_start|>", b"Hi"),
    owners=b"\xff\xff\x01\0",
    reread=Reread(index=1, cause="changed", n_tokens=4, old="a", new="b"),
    chunks=(Chunk(0, 2, 0.1, 0.2),),
    steps=(Step(5, b"\xe2", 0.5, -0.5, detail=DETAIL), Step(6, b" fox", 0.6, None, "reasoning", True, 2)),
    end=Step(2, b"<|im_end|>", 0.7, -0.1),
    marks=Marks(
        template_from_s=0.01,
        template_to_s=0.03,
        started_s=0.03,
        cached_s=0.04,
        prefilled_s=0.3,
        first_s=0.5,
        last_s=0.6,
        end_s=0.71,
    ),
    wall_s=0.72,
    sampling=SamplingParams(seed=9),
)


def test_it_is_the_same_after_the_disk() -> None:
    data = TRACE.packed()
    again = Trace.unpacked(data)
    assert again.n_bytes == len(data)
    assert msgspec.structs.replace(again, n_bytes=0) == TRACE
    assert list(again.prompt_tokens) == [1, 258] and list(again.prompt_owners) == [-1, 1] and again.n_prompt == 2


@pytest.mark.parametrize("data", [b"", b"no trace", zlib.compress(b"\x92\x01\x80"), zlib.compress(b"\x92\x63\x80")])
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="trace"):
        Trace.unpacked(data)


def test_the_time_line_has_no_gaps() -> None:
    parts = TRACE.parts()
    assert [p.name for p in parts] == ["queue", "template", "wait", "cache", "prefill", "sample", "decode", "end"]
    assert [parts[0].from_s, *(p.to_s for p in parts)] == [0, 0.01, 0.03, 0.03, 0.04, 0.3, 0.5, 0.6, 0.71]
    waited = msgspec.structs.replace(TRACE, wall_s=1.71)
    assert waited.arrived_s == pytest.approx(1.0)
    assert waited.parts()[0].name == "load" and waited.parts()[-1].to_s == pytest.approx(1.71)


_MOMENTS = {"started_s": 0.03, "cached_s": 0.04, "prefilled_s": 0.3, "first_s": 0.5, "last_s": 0.6}
_NAMES = ["queue", "template", "wait", "cache", "prefill", "sample", "decode", "end"]


@pytest.mark.parametrize("n_reached", [0, 1, 2, 3, 5])
def test_a_request_that_ended_early_was_at_its_last_part_until_then(n_reached: int) -> None:
    """Nothing counts as done that was not: what was going on takes all the time until the end."""
    known = dict([*_MOMENTS.items()][:n_reached])
    marks = Marks(template_from_s=0.01, template_to_s=0.02, end_s=2.0, **known)
    parts = msgspec.structs.replace(TRACE, marks=marks, wall_s=2.0).parts()
    assert [p.name for p in parts] == _NAMES[: 3 + n_reached]
    assert parts[-1].to_s == 2.0 and sum(p.took_s for p in parts) == pytest.approx(2.0)
    assert parts[-1].took_s > 1.0, "the time is that of what was going on"
    assert msgspec.structs.replace(TRACE, marks=None).parts() == ()


@pytest.mark.parametrize(
    ("changes", "n_known"),
    [
        ({}, 2),
        ({"steps": (), "end": None, "marks": None}, 2),  # computed, though nothing came of it
        ({"steps": (), "end": None, "marks": None, "chunks": (Chunk(0, 1, 0.1, 0.2),)}, 1),
        ({"steps": (), "end": None, "marks": None, "chunks": ()}, 0),
        ({"steps": (), "end": None, "marks": None, "chunks": (), "n_cached": 1}, 1),
        # tokens that were given are told before the prompt is read
        ({"steps": (Step(5, b"x", 0.1, forced=True),), "end": None, "marks": None, "chunks": (), "n_forced": 1}, 0),
        ({"steps": (), "end": None, "marks": None, "chunks": (Chunk(1, 5, 0.1, 0.2),), "n_forced": 4}, 2),
        ({"chunks": ()}, 2),  # a worker that tells no steps of reading, but wrote
    ],
)
def test_only_what_was_read_counts_as_read(changes: dict[str, Any], n_known: int) -> None:
    trace = msgspec.structs.replace(TRACE, **changes)
    assert trace.n_known == n_known
    assert trace.n_read == max(0, n_known - trace.n_cached)
    assert json.loads(trace.to_json())["n_known"] == n_known


def test_json_says_all_of_it() -> None:
    data = json.loads(TRACE.to_json())
    assert data["prompt"] == [
        {"token_id": 1, "text": "<|im_start|>", "message": -1},
        {"token_id": 258, "text": "Hi", "message": 1},
    ]
    first, second = data["steps"]
    assert (first["text"], first["hex"]) == ("\ufffd", "e2") and "hex" not in second
    assert first["stages"][1] == {"name": "dry", "n_left": 40, "n_changed": 3}
    assert first["candidates"][1] == {"token_id": 6, "text": " fox", "logprob": -1.0}
    assert (second["channel"], second["drafted"], second["n_rejected"]) == ("reasoning", True, 2)
    assert data["end"]["text"] == "<|im_end|>" and data["reread"]["cause"] == "changed"
    assert data["messages"][1]["message"]["content"] == "Hi" and data["seed"] == 9
    assert len(data["parts"]) == 8 and data["chunks"] == [{"first": 0, "count": 2, "began_s": 0.1, "took_s": 0.2}]


# ------------------------------------------------------------------ the store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    one = ChatStore(tmp_path / "chats.db")
    yield one
    one.close()


def test_one_trace_for_a_message_and_the_oldest_go(store: ChatStore) -> None:
    chat = store.create_chat().id
    _, first, _, second = grow(store, chat, 4)
    assert store.traces.get(first) is None and store.traces.latest() is None and store.traces.usage() == (0, 0)
    store.traces.put(first, b"a" * 100, 250)
    store.traces.put(second, b"b" * 100, 250)
    assert store.traces.usage() == (2, 200) and store.traces.latest() == second
    store.traces.put(first, b"c" * 50, 250)  # it was written on: now it is the newest
    assert store.traces.get(first) == b"c" * 50 and store.traces.usage() == (2, 150)
    store.traces.put(second, b"d" * 220, 250)
    assert store.traces.get(first) is None and store.traces.usage() == (1, 220)
    store.traces.put(first, b"e" * 251, 250)
    assert store.traces.get(first) is None and store.traces.get(second) is not None, "too large for anything to go"
    assert store.traces.clear_some() is None
    assert store.traces.usage() == (0, 0)


def test_a_trace_goes_with_its_message(store: ChatStore) -> None:
    chat = store.create_chat().id
    _, answer = grow(store, chat, 2)
    store.traces.put(answer, b"x", 100)
    store.delete_message(answer)
    assert store.traces.get(answer) == b"x" and store.traces.latest() is None, "deleting can be undone"
    store.purge_deleted(-1)
    assert store.traces.usage() == (0, 0)
    store.traces.put(answer, b"x", 100)
    assert store.traces.usage() == (0, 0), "the message is gone"


def fill(store: ChatStore, n: int, size: int) -> None:
    """So many traces of so many bytes."""
    chat = store.create_chat().id
    with one_transaction(store):
        for message_id in grow(store, chat, 2 * n)[1::2]:
            store.traces.put(message_id, os.urandom(size), 1 << 40)


def test_all_go_in_pieces_and_the_file_gets_small(store: ChatStore, tmp_path: Path) -> None:
    fill(store, 30, 1 << 20)
    lasts, counts = [store.traces.clear_some()], [store.traces.usage()[0]]
    fill(store, 2, 100)  # these came while they were forgotten
    while lasts[-1] is not None:
        lasts.append(store.traces.clear_some(lasts[-1]))
        counts.append(store.traces.usage()[0])
    assert len(lasts) == 8 and counts[0] == 26, "at most 4 MiB at a time"
    assert counts[-1] == 2, "only what was there at first goes"
    n_pieces = 1
    while store.traces.shrink_some(busy=True):
        n_pieces += 1
    assert n_pieces > 5
    assert (tmp_path / "chats.db").stat().st_size < 1 << 20
    assert store.is_sound()


def test_one_that_is_larger_than_a_piece_goes_too(store: ChatStore) -> None:
    fill(store, 2, 5 << 20)
    last = store.traces.clear_some()
    assert last is not None and store.traces.usage()[0] == 1
    assert store.traces.clear_some(last) is None and store.traces.usage()[0] == 0
    assert store.traces.clear_some() is None, "nothing to forget"


def test_a_file_of_before_is_written_anew_only_while_nothing_else_is(store: ChatStore, tmp_path: Path) -> None:
    store._db.run("PRAGMA auto_vacuum = NONE")
    store._db.run("VACUUM")
    fill(store, 6, 1 << 20)
    while store.traces.clear_some() is not None:
        pass
    file = tmp_path / "chats.db"
    assert not store.traces.shrink_some(busy=True)
    assert store._db.value("PRAGMA freelist_count") > 0, "not now: it would hold up an answer"
    assert not store.traces.shrink_some(busy=False)
    assert store._db.value("PRAGMA freelist_count") == 0 and file.stat().st_size < 1 << 20
    assert store._db.value("PRAGMA auto_vacuum") == 2, "from now on in pieces"
