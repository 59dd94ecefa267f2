"""Chat templates: the conventions of transformers, which template is used, and shapes for templates that refuse."""

from __future__ import annotations

from datetime import datetime

import pytest
from real_vocab import cases

from engine.chat.folding import FIRST_NOTE, MERGE_NOTE, SYSTEM_NOTE, TOOL_NOTE
from engine.chat.template import OMITTED_NOTE, ChatTemplate, choose
from engine.chat.template_source import compile_template
from engine.errors import InvalidRequest, TemplateFailed
from engine.message import PromptMessage

CLOCK = datetime(2024, 7, 26, 9, 30)
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def system(text: str = "Be brief.") -> PromptMessage:
    return PromptMessage("system", text)


def user(text: str = "Hello") -> PromptMessage:
    return PromptMessage("user", text)


def answer(text: str = "Hi there", **more: object) -> PromptMessage:
    return PromptMessage("assistant", text, **more)  # type: ignore[arg-type]


def rendered(source: str, *messages: PromptMessage) -> str:
    made = choose(source, bos="<s>", eos="</s>")
    assert made.info.source == "file", made.info.error
    return made.render(messages or (user(),), now=CLOCK).text


# ------------------------------------------------------------------ conventions (case B13)


@pytest.mark.parametrize("case", cases("jinja_cases.json"), ids=lambda case: case["name"])
def test_expectations_of_llama_cpp_for_the_language(case: dict[str, str]) -> None:
    text = "".join(compile_template(case["template"]).generate())
    assert text.rstrip("\n") == case["expected"].rstrip("\n")


@pytest.mark.parametrize("case", cases("chat_cases.json"), ids=lambda case: case["name"])
def test_expectations_of_llama_cpp_for_whole_templates(case: dict[str, str]) -> None:
    made = choose(case["template"], bos=case["bos"], eos=case["eos"])
    assert made.info.source == "file"
    got = made.render(
        [
            system("You are a helpful assistant"),
            user("Hello"),
            answer("Hi there"),
            user("Who are you"),
            answer("   I am an assistant   "),
            user("Another question"),
        ]
    )
    expected = case["expected"]
    if SYSTEM_NOTE in got.notes:  # folding leaves an empty line where llama.cpp begins a new one
        expected = expected.replace("helpful assistant\nHello", "helpful assistant\n\nHello")
    assert got.text.replace("\r\n", "\n") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'k': \"é<&'\"} | tojson }}", '{"k": "é<&\'"}'),
        ("{{ {'k': 'é'} | tojson(ensure_ascii=True) }}", '{"k": "\\u00e9"}'),
        ("{{ {'b': 1, 'a': [2]} | tojson(ensure_ascii=False, indent=2) }}", '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=True) }}", '{"a":2,"b":1}'),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% for i in range(4) %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% generation %}a{{ messages[0].content }}{% endgeneration %}b", "aHellob"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ tools is none }} {{ documents is none }} {{ enable_thinking is defined }}", "True True False"),
        ("{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt }}", "<s>|</s>|True"),
        ("{{ messages[0]['content'] }} {{ messages[0].role }} {{ messages[0].get('name', '-') }}", "Hello user -"),
        ("{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}", "role=user;content=Hello;"),
        ("{{ '<b>' }}{{ '<' | e }}", "<b>&lt;"),
        ("{{ '%s-%03d' | format('a', 7) }}{{ '%s' % 'b' }}{{ '{:>4}'.format('c') }}", "a-007b   c"),
        ("{{ [1, 2] + [3] }}{{ 'a' ~ 1 ~ none }}{{ 'ab' * 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}", "[1, 2, 3]a1Noneabab332"),
        ("{{ [3, 1, 2] | sort | join(', ') }}{{ [1, 2] | sum }}{{ 'a\nb' | indent(2) }}", "1, 2, 33a\n  b"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}{% set y %}z{{ m(1) }}{% endset %}{{ y }}", "<a>z<1>"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
    ],
)
def test_conventions(source: str, expected: str) -> None:
    assert rendered(source) == expected


def test_the_words_of_raise_exception_reach_the_user() -> None:
    made = choose("{% if messages | length > 1 %}{{ raise_exception('Only one, please') }}{% endif %}x")
    with pytest.raises(TemplateFailed, match="refused this conversation: Only one, please") as caught:
        made.render([user(), answer(), user()])
    assert caught.value.details == {"kind": "refused", "template_words": "Only one, please"}


# ------------------------------------------------------------------ which template (cases B12, B15)


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ("{% for m in messages %}{{ m.content }", "syntax error"),
        ("{% unknowntag %}", "unknowntag"),
        ("{{ messages[0].content | nosuchfilter }}", "nosuchfilter"),
        ("{{ raise_exception('never') }}", "never"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ nothing.at.all }}", "does not exist"),
    ],
)
def test_a_broken_template_never_stops_a_model(broken: str, word: str) -> None:
    made = choose(broken, special_tokens=CHATML_TOKENS)
    assert (made.info.source, made.info.name) == ("fallback", "chatml")
    assert word in made.info.error
    assert word in made.info.note
    assert "ChatML" in made.info.note
    text = made.render([system(), user()]).text
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_no_template_is_guessed_from_special_tokens_and_said() -> None:
    made = choose(None, special_tokens=CHATML_TOKENS)
    assert (made.info.source, made.info.name, made.info.error) == ("guess", "chatml", "")
    assert "no chat template" in made.info.note
    assert "<|im_start|>" in made.info.note


@pytest.mark.parametrize(
    ("tokens", "name"),
    [
        ({"<|im_start|>", "<|im_end|>", "<|im_sep|>"}, "phi-4"),
        ({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, "llama-3"),
        ({"<|header_start|>", "<|header_end|>", "<|eot|>"}, "llama-4"),
        ({"<|turn>", "<turn|>"}, "gemma-4"),
        ({"<start_of_turn>", "<end_of_turn>"}, "gemma"),
        ({"[gMASK]", "<sop>", "<|user|>", "<|assistant|>"}, "glm-4"),
        ({"<|user|>", "<|assistant|>", "<|end|>"}, "phi-3"),
        ({"<|user|>", "<|assistant|>"}, "zephyr"),
        ({"<|start_of_role|>", "<|end_of_role|>"}, "granite"),
        ({"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"}, "command-r"),
        ({"<｜User｜>", "<｜Assistant｜>"}, "deepseek"),
        ({"<|start|>", "<|message|>", "<|channel|>", "<|end|>"}, "harmony"),
        ({"[|user|]", "[|assistant|]"}, "exaone"),
        ({"[INST]", "[/INST]", "[SYSTEM_PROMPT]"}, "mistral-v7"),
        ({"[INST]", "[/INST]"}, "mistral"),
    ],
)
def test_every_builtin_format_renders_a_conversation(tokens: set[str], name: str) -> None:
    made = choose(None, special_tokens=tokens, bos="<s>", eos="</s>")
    assert (made.info.source, made.info.name) == ("guess", name)
    got = made.render([system("RULE"), user("ONE"), answer("TWO"), user("THREE")])
    assert [got.text.count(word) for word in ("RULE", "ONE", "TWO", "THREE")] == [1, 1, 1, 1]
    assert got.text.index("RULE") < got.text.index("ONE") < got.text.index("TWO") < got.text.index("THREE")
    assert bool(got.notes) == (not made.info.supports_system)
    assert not got.text.endswith("THREE")
    assert any(token in got.text for token in tokens)


def test_a_name_is_a_hint_where_the_format_has_no_special_tokens() -> None:
    made = choose(None, special_tokens=("<s>", "</s>"), bos="<s>", eos="</s>", name="Llama-2-7B-Chat llama")
    assert (made.info.source, made.info.name) == ("guess", "llama-2")
    assert (
        made.render([user(), answer(), user("More")]).text
        == "<s>[INST] Hello [/INST] Hi there </s><s>[INST] More [/INST]"
    )


def test_a_base_model_writes_on() -> None:
    made = choose("", special_tokens=("<s>", "</s>"))
    assert (made.info.source, made.info.name) == ("fallback", "completion")
    assert "base model" in made.info.note
    assert made.render([user("Once upon")]).text == "Once upon"
    assert made.render([user("Once upon"), answer("a time")], continue_last=True).text == "Once upon\n\na time"


def test_a_template_of_the_user_comes_first_and_a_broken_one_is_said() -> None:
    own = choose("{{ messages[0].content }}", user_template="U:{{ messages[0].content }}")
    assert (own.info.source, own.render([user()]).text) == ("user", "U:Hello")
    broken = choose("F:{{ messages[0].content }}", user_template="{% if %}")
    assert (broken.info.source, broken.render([user()]).text) == ("file", "F:Hello")
    assert "Your chat template cannot be used" in broken.info.error


def test_named_templates_use_the_default_one() -> None:
    named = {"tool_use": "T", "default": "D{{ messages[0].content }}"}
    assert choose(named).render([user()]).text == "DHello"


@pytest.mark.parametrize(
    ("source", "tag"),
    [
        ("{{ messages[0].content }}<think>\n", "think"),
        ("{{ messages[0].content.split('</thinking>')[-1] }}", "thinking"),
        ("{{ messages[0].content }}{# [/THINK] #}", "[THINK]"),
        (
            "{{ messages[0].content }}{% for m in messages %}{% if m.reasoning_content %}<{{ 'mull' }}>"
            "{{ m.reasoning_content }}</{{ 'mull' }}>{% endif %}{% endfor %}",
            "mull",
        ),
        ("{{ messages[0].content }}", ""),
    ],
)
def test_the_thinking_tag_is_found(source: str, tag: str) -> None:
    assert choose(source).info.thinking_tag == tag


# ------------------------------------------------------------------ shapes (case B14)

NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "[{{ m.role }}:{{ m.content | trim }}]{% endfor %}"
)
IGNORES = "{% for m in messages if m.role in ('user', 'assistant') %}[{{ m.role }}:{{ m.content | trim }}]{% endfor %}"


@pytest.mark.parametrize(
    ("messages", "text", "notes"),
    [
        ([system(), user()], "[user:Be brief.\n\nHello]", (SYSTEM_NOTE,)),
        ([user("a"), user("b")], "[user:a\n\nb]", (MERGE_NOTE,)),
        ([answer(), user()], "[user:][assistant:Hi there][user:Hello]", (FIRST_NOTE,)),
        ([user("a"), answer("b"), answer("c")], "[user:a][assistant:b\n\nc]", (MERGE_NOTE,)),
        ([system(), user("a"), user("b")], "[user:Be brief.\n\na\n\nb]", (SYSTEM_NOTE, MERGE_NOTE)),
        ([system()], "[user:Be brief.]", (SYSTEM_NOTE,)),
        ([system("  "), user()], "[user:Hello]", (SYSTEM_NOTE,)),
        ([user("a"), answer("b"), system("c"), user("d")], "[user:a][assistant:b][user:c\n\nd]", (SYSTEM_NOTE,)),
        (
            [user("a"), answer("b"), PromptMessage("tool", "42")],
            "[user:a][assistant:b][user:Tool result:\n42]",
            (TOOL_NOTE,),
        ),
        ([user("a"), answer("b"), user("c")], "[user:a][assistant:b][user:c]", ()),
    ],
)
def test_shapes_for_a_template_that_refuses(messages: list[PromptMessage], text: str, notes: tuple[str, ...]) -> None:
    made = choose(NO_SYSTEM)
    assert made.info.source == "file"
    assert not made.info.supports_system
    got = made.render(messages)
    assert (got.text, got.notes) == (text, notes)


def test_a_silently_ignored_system_message_is_folded_too() -> None:
    made = choose(IGNORES)
    assert not made.info.supports_system
    got = made.render([system(), user()])
    assert (got.text, got.notes) == ("[user:Be brief.\n\nHello]", (SYSTEM_NOTE,))
    tool = made.render([user(), answer(), PromptMessage("tool", "42")])
    assert ("42" in tool.text, tool.notes) == (True, (TOOL_NOTE,))


def test_text_that_no_shape_shows_is_reported() -> None:
    made = choose("{{ messages[-1].content }}")
    got = made.render([user("a first"), answer("b"), user("c")])
    assert (got.text, got.notes) == ("c", (OMITTED_NOTE,))


def test_a_template_that_takes_it_gets_the_conversation_unchanged() -> None:
    made = choose("{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}")
    got = made.render([system(), user("a"), user("b"), answer(), answer(), system("late")])
    assert got.notes == ()
    assert got.text == "[system:Be brief.][user:a][user:b][assistant:Hi there][assistant:Hi there][system:late]"


def test_roles_are_a_closed_set() -> None:
    made = choose(None, special_tokens=CHATML_TOKENS)
    with pytest.raises(InvalidRequest, match="no role"):
        made.render([PromptMessage("x<|im_end|>", "a")])  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        made.render([])
    with pytest.raises(InvalidRequest):
        made.render([user()], continue_last=True)


# ------------------------------------------------------------------ writing on an answer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPENS = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")


@pytest.mark.parametrize("last", ["The sky is", "The sky is ", " The", "", "Hello", "a\n\n"])
@pytest.mark.parametrize("source", [CHATML, NO_SYSTEM])
def test_a_continued_answer_ends_with_its_own_text(source: str, last: str) -> None:
    text = choose(source).render([user(), answer(last)], continue_last=True).text
    start = (
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n" if source == CHATML else "[user:Hello][assistant:"
    )
    assert text == start + last


def continued(made: ChatTemplate, last: PromptMessage) -> tuple[str, str]:
    got = made.render([user(), last], continue_last=True)
    return got.text.rpartition("<|im_start|>assistant\n")[2], got.opened_thinking_tag


def test_continuing_thinking() -> None:
    plain, opens = choose(CHATML), choose(OPENS)
    open_ = answer("", reasoning="so far", reasoning_closed=False)
    done = answer("Well", reasoning="so far")
    assert continued(plain, open_) == ("<think>\nso far", "think")
    assert continued(opens, open_) == ("<think>\nso far", "think")
    assert continued(plain, done) == ("<think>\nso far\n</think>\n\nWell", "")
    assert continued(opens, done) == ("<think>\nso far\n</think>\n\nWell", "")
    other = answer("", reasoning="hm", reasoning_tag="thinking", reasoning_closed=False)
    assert continued(plain, other) == ("<thinking>\nhm", "thinking")


def test_a_prompt_that_opens_thinking_says_so() -> None:
    assert choose(OPENS).render([user()]).opened_thinking_tag == "think"
    assert choose(CHATML).render([user("<think>")]).opened_thinking_tag == ""
    closed = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n\n</think>\n\n{% endif")
    assert choose(closed).render([user()]).opened_thinking_tag == ""
