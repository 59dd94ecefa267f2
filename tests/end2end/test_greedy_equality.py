"""Greedy answers of the command line equal those of llama.cpp itself: a bare loop in a process of its own.

The judge shares no code with Inglenook: llama.cpp renders its own template, tokenizes, decodes the whole prompt in one
batch and takes the most probable token until the end of the answer. Both use one thread and the same batch sizes: other
chunks of a prompt move the last bits of the logits, and a greedy text can then differ. For the same reason both leave
the repacked weight layouts off where the build has AMX, as the worker does (its AMX code may be miscompiled).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import answer

MAX_TOKENS = 48
#: the model's template puts this in front where no system message is given; llama.cpp's built-in form of it does not
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
N_CTX = 2048
PROMPTS = [
    "Hi",
    "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled.",
    "Write a Python function that adds two numbers.",
    "What is the capital of France?",
    "List three colours.",
    "Explain gravity to a child in two sentences.",
    "Übersetze ins Englische: Guten Morgen, wie geht es dir?",
    "日本の首都はどこですか？",
    "Write a haiku about rain.",
    "2 + 2 =",
    "Give me a JSON object with the keys name and age.",
    "  leading and trailing spaces  ",
    "line one\nline two\n\n\tindented",
    "Who wrote Hamlet? 👩‍🎓",
    "Complete the sentence: The quick brown fox",
    "What is the difference between TCP and UDP?",
    "Tell me a joke about computers.",
    "Translate 'water' into Spanish, French and Italian.",
    "Summarize: " + "The ship left the harbour at dawn and met a storm. " * 20,
    "Write one line of C that prints hello.",
]
JUDGE = """
import ctypes, json, sys
import llama_cpp as L
import numpy as np

path, n_ctx, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
L.llama_backend_init()
options = L.llama_model_default_params()
options.use_extra_bufts = b"AMX_INT8 = 1" not in L.llama_print_system_info()
model = L.llama_model_load_from_file(path.encode(), options)
vocab = L.llama_model_get_vocab(model)
params = L.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = n_ctx, 2048, 512, 1, 1
context = L.llama_init_from_model(model, params)
template = L.llama_model_chat_template(model, None)

def render(prompt):
    chat = (L.llama_chat_message * 2)(
        L.llama_chat_message(role=b"system", content=sys.argv[4].encode()),
        L.llama_chat_message(role=b"user", content=prompt.encode()),
    )
    buffer = ctypes.create_string_buffer(len(prompt.encode()) * 2 + 4096)
    size = L.llama_chat_apply_template(template, chat, 2, True, buffer, len(buffer))
    assert 0 < size < len(buffer)
    return buffer.raw[:size]

def tokenize(text):
    tokens = (L.llama_token * (len(text) + 16))()
    count = L.llama_tokenize(vocab, text, len(text), tokens, len(tokens), True, True)
    assert count > 0
    return tokens[:count]

def piece(token):
    buffer = ctypes.create_string_buffer(256)
    size = L.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
    return buffer.raw[:size]

def answer(prompt):
    L.llama_memory_clear(L.llama_get_memory(context), True)
    tokens = tokenize(render(prompt))
    n_prompt, made, ended = len(tokens), [], False
    n_vocab = L.llama_vocab_n_tokens(vocab)
    todo = tokens
    while len(made) < limit:
        array = (L.llama_token * len(todo))(*todo)
        assert L.llama_decode(context, L.llama_batch_get_one(array, len(todo))) == 0
        logits = L.llama_get_logits_ith(context, -1)
        best = int(np.ctypeslib.as_array(logits, (n_vocab,)).argmax())
        made.append(best)
        if L.llama_vocab_is_eog(vocab, best):
            ended = True
            break
        todo = [best]
    text = b"".join(map(piece, made[:-1] if ended else made)).decode("utf-8", "replace")
    return {"prompt_tokens": n_prompt, "text": text, "completion_tokens": len(made), "ended": ended}

for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
"""


def judge(starter_model: Path, prompts: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, str(starter_model), str(N_CTX), str(MAX_TOKENS), SYSTEM],
        input="".join(json.dumps(prompt) + "\n" for prompt in prompts).encode(),
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("start", range(0, len(PROMPTS), 5))
def test_same_text_as_llama_cpp(starter_model: Path, start: int) -> None:
    prompts = PROMPTS[start : start + 5]
    options = ("--temperature", "0", "--max-tokens", str(MAX_TOKENS), "--context", str(N_CTX), "--threads", "1")
    for number, (prompt, expected) in enumerate(zip(prompts, judge(starter_model, prompts), strict=True)):
        system = ("--system", SYSTEM) if number % 2 else ()
        ours = answer("--model", "starter", "--prompt", prompt, *options, *system)
        assert ours["usage"]["prompt_tokens"] == expected["prompt_tokens"], prompt
        assert ours["text"] == expected["text"], prompt
        assert (ours["finish_reason"] == "stop") == expected["ended"], prompt
