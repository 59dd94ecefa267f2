"""The record of an answer that is continued adds up."""

from __future__ import annotations

from engine.chat.generation import Generation, begun, completed
from engine.events import Done
from engine.message import GenerationRecord, Message, TextPart, Timings, Usage


def done(text: str, prompt: int, written: int, ttft_s: float, tps: float) -> Done:
    timings = Timings(ttft_s=ttft_s, prefill_s=ttft_s / 2, decode_s=written / tps, decode_tps=tps)
    return Done(
        request_id="r", text=text, usage=Usage(prompt, written, prompt - 1), timings=timings, finish_reason="length"
    )


def message(*, text: str, generation: GenerationRecord | None) -> Message:
    parts = (TextPart(text),) if text else ()
    return Message(id=2, chat_id=1, parent_id=1, role="assistant", parts=parts, generation=generation)


def written(before: Message, event: Done, *, continued: bool) -> Message:
    record = begun(GenerationRecord(model_name="m"), before, continued=continued)
    parts, _status, record = Generation("r", before, record, "").finish(event)
    return message(text="".join(p.text for p in parts if isinstance(p, TextPart)), generation=record)


def test_tokens_add_up_and_the_first_token_stays_the_first() -> None:
    answer = written(message(text="", generation=GenerationRecord()), done("one", 30, 10, 0.5, 20), continued=False)
    assert answer.generation is not None and answer.generation.usage == Usage(30, 10, 29)
    for n, total in ((1, 17), (2, 24)):
        answer = written(answer, done(" more", 30 + total - 7, 7, 0.01 * n, 50.0 + n), continued=True)
        record = answer.generation
        assert record is not None
        assert record.usage == Usage(30, total, 30)
        assert (record.timings.ttft_s, record.timings.prefill_s) == (0.5, 0.25)
        assert record.timings.decode_tps == 50.0 + n


def test_what_ends_a_continuation_early_loses_no_figure() -> None:
    first = GenerationRecord(usage=Usage(30, 10, 0), timings=Timings(ttft_s=0.5))
    record = begun(GenerationRecord(), message(text="one", generation=first), continued=True)
    assert (record.usage, record.timings) == (first.usage, first.timings)


def test_an_answer_made_anew_starts_from_nothing() -> None:
    first = GenerationRecord(usage=Usage(30, 10, 0), timings=Timings(ttft_s=0.5))
    old = message(text="", generation=first)
    for continued in (False, True):  # nothing was written: there is nothing to continue
        record = begun(GenerationRecord(), old, continued=continued)
        assert record == GenerationRecord()
        assert completed(record, done("x", 30, 3, 0.2, 9)).usage == Usage(30, 3, 29)


def test_a_first_token_that_nobody_timed_stays_unknown() -> None:
    edited = message(text="typed by the user", generation=None)
    record = written(edited, done(" and on", 40, 5, 0.1, 9), continued=True).generation
    assert record is not None and record.timings.ttft_s is None and record.usage.completion_tokens == 5
