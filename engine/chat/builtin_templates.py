"""Chat formats for files that carry no template of their own, recognised by their special tokens.

Each format is as the makers of the models document it. `{{ bos_token }}` stands first where the format has one; a
format without a system role refuses it, and the folding in `template` then puts it into the first user message.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class BuiltinTemplate:
    """A chat format.

    Attributes:
        name: short name, as in `events.TemplateInfo.name`.
        title: name for people.
        markers: special tokens that all must be in the vocabulary.
        source: the Jinja template.
        hint: pattern for the model's name, where the format has no special tokens.
    """

    name: str
    title: str
    markers: tuple[str, ...]
    source: str
    hint: str = ""


def _each(body: str, generation: str, before: str = "{{ bos_token }}") -> str:
    return (
        before
        + "{% for m in messages %}"
        + body
        + "{% endfor %}{% if add_generation_prompt %}"
        + generation
        + "{% endif %}"
    )


_NO_SYSTEM = "{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
_NO_REPEAT = (
    "{% if (m.role == 'assistant') != (loop.index0 % 2 == 1) %}"
    "{{ raise_exception('user and assistant must take turns') }}{% endif %}"
)

#: in this order: a more particular format stands before a more general one
BUILTIN: tuple[BuiltinTemplate, ...] = (
    BuiltinTemplate(
        "phi-4",
        "Phi-4",
        ("<|im_start|>", "<|im_sep|>"),
        _each("<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>", "<|im_start|>assistant<|im_sep|>", ""),
    ),
    BuiltinTemplate(
        "chatml",
        "ChatML",
        ("<|im_start|>", "<|im_end|>"),
        _each("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n", "<|im_start|>assistant\n", ""),
    ),
    BuiltinTemplate(
        "llama-3",
        "Llama 3",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        _each(
            "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ),
    BuiltinTemplate(
        "llama-4",
        "Llama 4",
        ("<|header_start|>", "<|header_end|>", "<|eot|>"),
        _each(
            "<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content | trim }}<|eot|>",
            "<|header_start|>assistant<|header_end|>\n\n",
        ),
    ),
    BuiltinTemplate(
        "gemma-4",
        "Gemma 4",
        ("<|turn>", "<turn|>"),
        _each(
            "<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<turn|>\n",
            "<|turn>model\n",
        ),
    ),
    BuiltinTemplate(
        "gemma",
        "Gemma",
        ("<start_of_turn>", "<end_of_turn>"),
        _each(
            _NO_SYSTEM
            + _NO_REPEAT
            + "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n"
            + "{{ m.content | trim }}<end_of_turn>\n",
            "<start_of_turn>model\n",
        ),
    ),
    BuiltinTemplate(
        "glm-4",
        "GLM-4",
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>"),
        _each("<|{{ m.role }}|>\n{{ m.content }}", "<|assistant|>\n", "[gMASK]<sop>"),
    ),
    BuiltinTemplate(
        "phi-3",
        "Phi-3",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        _each("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n", "<|assistant|>\n", ""),
    ),
    BuiltinTemplate(
        "zephyr",
        "Zephyr",
        ("<|user|>", "<|assistant|>"),
        _each("<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n", "<|assistant|>\n", ""),
    ),
    BuiltinTemplate(
        "granite",
        "Granite",
        ("<|start_of_role|>", "<|end_of_role|>"),
        _each(
            "<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}{{ eos_token }}\n",
            "<|start_of_role|>assistant<|end_of_role|>",
            "",
        ),
    ),
    BuiltinTemplate(
        "command-r",
        "Command R",
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        _each(
            "<|START_OF_TURN_TOKEN|>{{ {'assistant': '<|CHATBOT_TOKEN|>', 'system': '<|SYSTEM_TOKEN|>'}"
            ".get(m.role, '<|USER_TOKEN|>') }}{{ m.content | trim }}<|END_OF_TURN_TOKEN|>",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        ),
    ),
    BuiltinTemplate(
        "deepseek",
        "DeepSeek",
        ("<｜User｜>", "<｜Assistant｜>"),
        _each(
            "{% if m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}{{ eos_token }}"
            "{% elif m.role == 'system' %}{{ m.content }}{% else %}<｜User｜>{{ m.content }}{% endif %}",
            "<｜Assistant｜>",
        ),
    ),
    BuiltinTemplate(
        "harmony",
        "Harmony (gpt-oss)",
        ("<|start|>", "<|message|>", "<|channel|>", "<|end|>"),
        _each(
            "<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
            "<|message|>{{ m.content }}<|end|>",
            "<|start|>assistant",
            "",
        ),
    ),
    BuiltinTemplate(
        "exaone",
        "EXAONE",
        ("[|user|]", "[|assistant|]"),
        _each("[|{{ m.role }}|]{{ m.content }}{{ '[|endofturn|]' if m.role != 'user' }}\n", "[|assistant|]", ""),
    ),
    BuiltinTemplate(
        "mistral-v7",
        "Mistral",
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]"),
        _each(
            "{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]"
            "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}{% else %}[INST]{{ m.content }}[/INST]"
            "{% endif %}",
            "",
        ),
    ),
    BuiltinTemplate(
        "mistral",
        "Mistral",
        ("[INST]", "[/INST]"),
        _each(
            _NO_SYSTEM
            + _NO_REPEAT
            + "{% if m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% else %}[INST] {{ m.content }}[/INST]"
            "{% endif %}",
            "",
        ),
    ),
    BuiltinTemplate(
        "llama-2",
        "Llama 2",
        (),
        _each(
            _NO_SYSTEM
            + _NO_REPEAT
            + "{% if m.role == 'assistant' %} {{ m.content }} {{ eos_token }}"
            + "{% else %}{{ bos_token if loop.index0 }}[INST] {{ m.content }} [/INST]{% endif %}",
            "",
        ),
        hint=r"llama-?2.*chat|mistral.*instruct|mixtral.*instruct",
    ),
)

#: for base models: no roles, the texts follow each other and the model writes on
COMPLETION = BuiltinTemplate(
    "completion",
    "plain continuation",
    (),
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{% if not loop.last %}{{ '\\n\\n' }}{% endif %}{% endfor %}",
)


def guess(special_tokens: Collection[str], hint: str = "") -> BuiltinTemplate | None:
    """The format whose special tokens are all in the vocabulary, else one that the model's name points to."""
    known = frozenset(special_tokens)
    for each in BUILTIN:
        if each.markers and known.issuperset(each.markers):
            return each
    return next((each for each in BUILTIN if each.hint and re.search(each.hint, hint, re.IGNORECASE)), None)
