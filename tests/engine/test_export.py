"""Chats to Markdown and JSON and back; OpenAI's messages as input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.chat.export import from_json, messages_from_openai, openai_messages, read_messages, to_json, to_markdown
from engine.errors import InvalidRequest
from engine.message import Chat, GenerationRecord, PromptMessage, ReasoningPart, TextPart
from engine.store.chats import ChatStore


@pytest.fixture
def chat_and_store(tmp_path: Path) -> Any:
    store = ChatStore(tmp_path / "chats.db")
    chat = store.create_chat("Pods & 豆荚")
    question = store.add_message(chat.id, None, "user", (TextPart("Why?\n\n```sh\nkubectl\n```\n"),))
    parts = (ReasoningPart("line one\n\nline two"), TextPart("Because."))
    generation = GenerationRecord(model_name="SmolLM2", n_ctx=5, notes=("n",))
    store.add_message(chat.id, question.id, "assistant", parts, status="stopped", generation=generation)
    store.add_message(chat.id, question.id, "assistant", (TextPart("Another 😀"),))
    yield store.chat(chat.id), store
    store.close()


def test_markdown(chat_and_store: tuple[Chat, ChatStore]) -> None:
    chat, store = chat_and_store
    first = store.all_messages(chat.id)[1]
    text = to_markdown(chat, store.branch(chat.id, first.id))
    assert text.startswith("# Pods & 豆荚\n\n## You\n\n*20")
    assert "\n```sh\nkubectl\n```\n" in text
    assert "## SmolLM2\n\n*" in text
    assert "UTC, stopped*" in text
    assert "> *Thinking*\n>\n> line one\n>\n> line two\n\nBecause.\n" in text
    assert "Another" not in text


def test_json_holds_all_and_comes_back(chat_and_store: tuple[Chat, ChatStore], tmp_path: Path) -> None:
    chat, store = chat_and_store
    tree = store.all_messages(chat.id)
    raw = to_json(chat, store.branch(chat.id), tree)
    back = from_json(raw)
    assert back.chat == chat
    assert back.tree == tree
    assert back.messages == openai_messages(store.branch(chat.id))
    path = tmp_path / "模型 export.json"
    path.write_text(raw, encoding="utf-8")
    assert [m.content for m in read_messages(path)] == [m.text for m in store.branch(chat.id)]


def test_reasoning_goes_along(chat_and_store: tuple[Chat, ChatStore]) -> None:
    chat, store = chat_and_store
    branch = store.branch(chat.id, store.all_messages(chat.id)[1].id)
    back = messages_from_openai(openai_messages(branch))
    assert back[1] == PromptMessage("assistant", "Because.", reasoning="line one\n\nline two")


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"format": "other"}', b"\xff", b"[" * 100_000])
def test_other_files_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        from_json(raw)


def test_an_export_of_a_later_version_is_refused(chat_and_store: tuple[Chat, ChatStore]) -> None:
    chat, store = chat_and_store
    data = json.loads(to_json(chat, store.branch(chat.id)))
    data["version"] += 1
    with pytest.raises(InvalidRequest, match="newer"):
        from_json(json.dumps(data))


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_text_and_parts_mean_the_same_for_every_role(role: str) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": " up\n"}]
    assert messages_from_openai([{"role": role, "content": parts}]) == [PromptMessage(role, "What is up\n")]  # type: ignore[arg-type]
    assert messages_from_openai({"model": "x", "messages": [{"role": role, "content": "What is up\n"}]}) == [
        PromptMessage(role, "What is up\n")  # type: ignore[arg-type]
    ]


def test_what_does_not_matter_is_ignored() -> None:
    got = messages_from_openai([{"role": "developer", "content": "a", "name": "n"}, {"role": "user", "content": []}])
    assert got == [PromptMessage("system", "a"), PromptMessage("user", "")]
    assert messages_from_openai([{"role": "user", "content": "\ud83d"}])[0].content == "\ufffd"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (None, "messages"),
        ("text", "messages"),
        ([], "messages"),
        ({}, "messages"),
        ({"messages": "x"}, "messages"),
        (["x"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "User", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {"type": "text", "text": "x"}}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]"),
        (
            [
                {"role": "user", "content": "fine"},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image_url", "image_url": {"url": "data:" + "A" * 100_000}},
                    ],
                },
            ],
            "messages[1].content[1]",
        ),
        ([{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}], "messages[0].tool_calls"),
        ([{"role": "assistant", "content": "", "reasoning_content": 1}], "messages[0].reasoning_content"),
    ],
)
def test_the_bad_place_is_named(data: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages_from_openai(data)
    assert caught.value.details["field"] == field
    assert caught.value.message.startswith(field + " ")
    assert len(caught.value.message) < 300


def test_an_image_is_named_by_its_type() -> None:
    with pytest.raises(InvalidRequest, match="image_url"):
        messages_from_openai([{"role": "user", "content": [{"type": "image_url"}]}])


def test_files_as_shells_write_them(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    text = '[{"role": "user", "content": "é"}]'
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_text(text, encoding=encoding)
        assert read_messages(path)[0].content == "é"
    for raw in (b"", b"{", b"\xff\x00\x01", b"[" * 100_000):
        path.write_bytes(raw)
        with pytest.raises(InvalidRequest):
            read_messages(path)
    with pytest.raises(InvalidRequest):
        read_messages(tmp_path / "missing.json")
    with pytest.raises(InvalidRequest):
        read_messages(tmp_path)
