"""The 70 real templates of llama.cpp's test data, each with every shape of conversation a chat can have."""

from __future__ import annotations

from datetime import datetime

import pytest
from real_vocab import templates

from engine.chat.template import OMITTED_NOTE, ChatTemplate, choose
from engine.message import PromptMessage
from engine.worker.prompt import PromptBuilder

NAMES = sorted(templates())
CLOCK = datetime(2025, 3, 4)
SYSTEM = PromptMessage("system", "Obey the <rule>.")
USER, USER_2 = PromptMessage("user", "First [question] & 'quote'"), PromptMessage("user", "Second <i>question</i>")
ANSWER, ANSWER_2 = PromptMessage("assistant", "First answer: {a} <b>"), PromptMessage("assistant", "Second answer")
TOOL = PromptMessage("tool", "Tool says 42")

CONVERSATIONS = {
    "user": [USER],
    "system, user": [SYSTEM, USER],
    "three turns": [USER, ANSWER, USER_2],
    "system, three turns": [SYSTEM, USER, ANSWER, USER_2],
    "two users": [USER, USER_2],
    "assistant first": [ANSWER, USER],
    "two assistants": [USER, ANSWER, ANSWER_2, USER_2],
    "tool": [USER, ANSWER, TOOL],
    "late system": [USER, ANSWER, SYSTEM, USER_2],
}
FINISHED = {k: v for k, v in CONVERSATIONS.items() if k not in ("assistant first", "two assistants", "tool")}


def chosen(name: str) -> ChatTemplate:
    made = choose(templates()[name], bos="<s>", eos="</s>")
    assert made.info.source == "file", made.info.error
    return made


def test_there_are_seventy() -> None:
    assert len(NAMES) == 70


@pytest.mark.parametrize("name", NAMES)
def test_every_conversation_gets_through_whole(name: str) -> None:
    made = chosen(name)
    for messages in CONVERSATIONS.values():
        got = made.render(messages, now=CLOCK)
        assert OMITTED_NOTE not in got.notes
        for message in messages:
            assert message.content in got.text
        assert "�" not in got.text


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_can_be_continued(name: str) -> None:
    made = chosen(name)
    for last in ("The answer is", "The answer is ", ""):
        got = made.render([SYSTEM, USER, ANSWER, USER_2, PromptMessage("assistant", last)], continue_last=True)
        assert got.text.endswith(last)
    thinking = PromptMessage("assistant", "", reasoning="Well, perhaps", reasoning_closed=False)
    opened = made.render([USER, thinking], continue_last=True)
    assert opened.text.endswith("Well, perhaps")
    assert opened.opened_thinking_tag


class NoTokens:
    """A vocabulary whose control tokens begin and end with all that is usual; tokens are characters."""

    control_texts = ("<s>", "</s>", "<|im_end|>", "[INST]", "{%x%}", "'quote", "&&")
    adds_bos = False
    bos_text = ""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [ord(c) for c in text]

    def piece(self, token: int) -> bytes:
        return chr(token).encode()


@pytest.mark.parametrize("name", NAMES)
def test_the_guard_against_forged_tokens_changes_no_prompt(name: str) -> None:
    made = chosen(name)
    builder = PromptBuilder(made, NoTokens(), 10**9)
    for messages in CONVERSATIONS.values():
        built = builder.build(messages, now=CLOCK)
        assert built.text == made.render(messages, now=CLOCK).text
        assert "".join(map(chr, built.tokens)) == built.text
