"""`inglenook chat` with real models: what it prints, what it reads, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runner import answer, events, run

Scripted = Callable[..., dict[str, Any]]
#: ends with text that is in no script, so a scripted reply starts behind it
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}[reply]"


@pytest.fixture(scope="module")
def says_hello(scripted_model: Scripted) -> str:
    script = ["Hello", ",", " wor", "ld", "!", " ST", "OP", " and", " more"]
    return str(scripted_model(script, template=TEMPLATE, tail="[reply]")["path"])


# ------------------------------------------------------------------ output


def test_json_events_and_their_end(starter_model: Path) -> None:
    done = run("chat", "--model", "starter", "--prompt", "Count to ten.", "--max-tokens", "12", "--seed", "7", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    found = events(done)
    kinds = [event["type"] for event in found]
    assert kinds.count("done") == 1
    assert kinds[-1] == "done"
    assert kinds.index("loaded") < kinds.index("prompt_progress") < kinds.index("token")
    assert "load_progress" in kinds
    loaded = found[kinds.index("loaded")]["model"]
    assert loaded["path"] == str(starter_model)
    assert loaded["quantization"] == "Q4_1"
    tokens = [event for event in found if event["type"] == "token"]
    last = found[-1]
    assert [token["index"] for token in tokens] == list(range(12))
    assert last["usage"]["completion_tokens"] == len(tokens)
    assert last["text"] == "".join(token.get("text", "") for token in tokens)
    assert last["finish_reason"] == "length"
    assert last["seed"] == 7
    counts = {"prompt_tokens", "completion_tokens", "cached_tokens", "shifted_tokens", "restored_tokens"}
    assert counts <= set(last["usage"])
    timings = last["timings"]
    assert timings["ttft_s"] > 0
    assert timings["prefill_tps"] > 0
    assert timings["decode_tps"] > 0


def test_plain_output_is_the_answer_alone(says_hello: str) -> None:
    done = run("chat", "-m", says_hello, "-p", "hi", "--temperature", "0")
    assert (done.returncode, done.stdout) == (0, "Hello, world! STOP and more\n")


def test_stop_texts_are_cut_off(says_hello: str) -> None:
    last = answer("-m", says_hello, "-p", "hi", "--stop", "nothing", "--stop", " STOP")
    assert (last["text"], last["finish_reason"], last["stop_string"]) == ("Hello, world!", "stop", " STOP")
    last = answer("-m", says_hello, "-p", "hi", "--stop", "o, w", "--stop", "world")
    assert last["text"] == "Hell"
    assert run("chat", "-m", says_hello, "-p", "hi", "--stop", "Hello").stdout == ""


def test_max_tokens(says_hello: str) -> None:
    last = answer("-m", says_hello, "-p", "hi", "--max-tokens", "2")
    assert (last["text"], last["finish_reason"]) == ("Hello,", "length")
    assert last["usage"]["completion_tokens"] == 2


def test_one_token_has_no_speed(says_hello: str) -> None:
    timings = answer("-m", says_hello, "-p", "hi", "--max-tokens", "1")["timings"]
    assert timings["decode_tps"] is None
    assert timings["ttft_s"] > 0


def test_the_same_seed_gives_the_same_answer(scripted_model: Scripted) -> None:
    faces = ["one", "two", "three", "four", "five", "six"]
    model = scripted_model([], template=TEMPLATE, tail="[reply]", dice=faces)
    words = ("-m", str(model["path"]), "-p", "hi", "--temperature", "1", "--max-tokens", "24")
    first = answer(*words, "--seed", "11")
    assert first["usage"]["completion_tokens"] == 24
    assert answer(*words, "--seed", "11")["text"] == first["text"]
    assert answer(*words, "--seed", "12")["text"] != first["text"]
    free = answer(*words)
    assert free["text"] not in (first["text"], answer(*words)["text"])
    assert answer(*words, "--seed", str(free["seed"]))["text"] == free["text"], "the seed told can be used again"


def test_logit_bias_bans_and_forces() -> None:
    words = ("-p", "Say hello.", "--temperature", "0", "--max-tokens", "4")
    plain = run("chat", *words, "--json")
    first = next(event for event in events(plain) if event["type"] == "token")
    banned = run("chat", *words, "--json", "--logit-bias", f"{first['token_id']}=-inf")
    ids = [event["token_id"] for event in events(banned) if event["type"] == "token"]
    assert first["token_id"] not in ids
    forced = run("chat", *words, "--json", "--logit-bias", "28=1000")
    ids = [event["token_id"] for event in events(forced) if event["type"] == "token"]
    assert ids == [28] * 4


# ------------------------------------------------------------------ input

ODD_TEXT = "Zeile 1\n\tтабуляция 模型 👩‍👩‍👧 \u202e \u2028 \"quoted\" 'single' \\n %s {} <|im_end|> $HOME `x`\r\nend"


def test_prompt_from_standard_input(says_hello: str) -> None:
    given = answer("-m", says_hello, "-p", ODD_TEXT)
    for stdin in (ODD_TEXT + "\n", "\ufeff" + ODD_TEXT):
        read = answer("-m", says_hello, "-p", "-", stdin=stdin)
        assert (read["text"], read["usage"]) == (given["text"], given["usage"])
    assert answer("-m", says_hello, "-p", ODD_TEXT + "x")["usage"] != given["usage"]


def test_standard_input_that_is_no_text(says_hello: str) -> None:
    assert answer("-m", says_hello, "-p", "-", stdin=b"caf\xe9 \xff\x00")["text"].startswith("Hello")


def test_a_long_prompt_from_standard_input(says_hello: str) -> None:
    text = "word " * 3000
    last = answer("-m", says_hello, "-p", "-", "--context", "4096", stdin=text)
    assert last["usage"]["prompt_tokens"] > 3000


def test_conversation_from_a_file(says_hello: str, tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Say hello."}]
    path = tmp_path / "conversation.json"
    base = ("-m", says_hello)
    expected = answer(*base, "--system", "You are terse.", "-p", "Say hello.")["usage"]
    path.write_text(json.dumps({"model": "any", "messages": messages}))
    assert answer(*base, "--messages", str(path))["usage"] == expected
    assert answer(*base, "--messages", "-", stdin=json.dumps(messages))["usage"] == expected
    path.write_text(json.dumps(messages[:1]))
    assert answer(*base, "--messages", str(path), "-p", "Say hello.")["usage"] == expected
    assert answer(*base, "--messages", str(path), "-p", "Say hello again.")["usage"] != expected


def test_a_whole_conversation_reaches_the_model(scripted_model: Scripted, tmp_path: Path) -> None:
    model = scripted_model(["done"], template=TEMPLATE, tail="[reply]", probes=[("P", ["password"]), ("T", ["table"])])
    path = tmp_path / "conversation.json"
    turns = [
        {"role": "user", "content": "password"},
        {"role": "assistant", "content": [{"type": "text", "text": "fine"}]},
        {"role": "user", "content": "and now?"},
    ]
    path.write_text(json.dumps(turns))
    assert answer("-m", str(model["path"]), "--messages", str(path))["text"].startswith("P+T-")


def test_a_template_from_a_file(says_hello: str, tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages[0].content }}[reply]")
    short = answer("-m", says_hello, "-p", "hi", "--template", str(path))
    long = answer("-m", says_hello, "-p", "hi")
    assert short["usage"]["prompt_tokens"] < long["usage"]["prompt_tokens"]
    assert short["template_source"] == "user"


def test_lines_from_a_pipe_are_turns(scripted_model: Scripted) -> None:
    model = scripted_model(["ok"], template=TEMPLATE, tail="[reply]", probes=[("P", ["password"])])
    lines = "password\n\nand now\n/new\nand now\n/exit\nnever\n"
    done = run("chat", "-m", str(model["path"]), stdin=lines)
    assert done.returncode == 0
    assert done.stdout == "P+ok\nP+ok\nP-ok\n"
    assert run("chat", "-m", str(model["path"]), stdin="").stdout == ""


# ------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--top-k", "-5"), "top_k"),
        (("--temperature", "nan"), "temperature"),
        (("--top-p", "1.5"), "top_p"),
        (("--max-tokens", "0"), "max_tokens"),
        (("--seed", "4294967296"), "seed"),
        (("--mirostat", "3"), "mirostat"),
        (("--stop", ""), "stop"),
        (("--logit-bias", "-1=2"), "logit_bias"),
        (("--logit-bias", "99999999=2"), "logit_bias"),
        (("--temperature", "warm"), "--temperature"),
        (("--context", "0"), "context"),
        (("--threads", "0"), "threads"),
        (("--gpu-layers", "-2"), "gpu-layers"),
        (("--template", "no/such/file"), "template"),
        (("--messages", "no/such/file"), "no/such/file"),
        (("--bogus",), "--bogus"),
    ],
)
def test_a_bad_parameter_is_named(words: tuple[str, ...], named: str) -> None:
    done = run("chat", "-p", "hi", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    done = run("chat", "-p", "hi", *words, "--json")
    assert done.returncode == 2
    assert named in done.stdout
    last = events(done)[-1]
    assert last["type"] == "error"
    assert set(last["error"]) == {"code", "message", "hint", "details"}
    assert last["error"]["code"] == "invalid_request"


def test_json_needs_something_to_answer() -> None:
    done = run("chat", "--json")
    assert done.returncode == 2
    assert events(done)[-1]["error"]["details"] == {"field": "prompt"}


def test_models_that_cannot_be_loaded(tmp_path: Path, starter_model: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<!doctype html><html></html>")
    cut = tmp_path / "cut.gguf"
    with starter_model.open("rb") as file:
        cut.write_bytes(file.read(4_000_000))
    cases = {"nosuch": ("model_not_found", 3), str(page): ("not_a_model", 4), str(cut): ("model_damaged", 5)}
    for name, (code, status) in cases.items():
        done = run("chat", "-m", name, "-p", "hi", "--json")
        assert done.returncode == status
        assert [event["type"] for event in events(done)] == ["error"]
        error = events(done)[0]["error"]
        assert error["code"] == code
        assert error["hint"]
        plain = run("chat", "-m", name, "-p", "hi")
        assert (plain.returncode, plain.stdout) == (status, "")
        assert error["message"] in plain.stderr
        assert error["hint"] in plain.stderr


def test_a_prompt_longer_than_the_context() -> None:
    done = run("chat", "-p", "-", "--context", "512", "--json", stdin="word " * 2000)
    assert done.returncode == 9
    error = events(done)[-1]["error"]
    assert error["code"] == "context_full"
    assert error["details"]["n_ctx"] == 512
    assert error["details"]["n_prompt"] > 2000


def test_the_answer_ends_with_the_context(says_hello: str, scripted_model: Scripted) -> None:
    model = scripted_model(["again", " and"], template=TEMPLATE, tail="[reply]", loop=True)
    last = answer("-m", str(model["path"]), "-p", "hi", "--context", "256")
    assert last["finish_reason"] == "length"
    usage = last["usage"]
    assert 250 <= usage["prompt_tokens"] + usage["completion_tokens"] <= 257


def test_a_model_under_an_odd_name(says_hello: str, tmp_path: Path) -> None:
    folder = tmp_path / "山 月 Абв ü"
    folder.mkdir()
    for name in ("模型 q4.gguf", "a%20b#&'.gguf", "new\nline.gguf", "-dash.gguf"):
        path = folder / name
        path.write_bytes(Path(says_hello).read_bytes())
        assert answer("-m", str(path), "-p", "hi", "--max-tokens", "1")["text"] == "Hello"
    env = {"INGLENOOK_HOME": str(folder / "home"), "TMPDIR": str(folder), "HOME": str(folder)}
    assert answer("-m", str(path), "-p", "hi", "--max-tokens", "1", env=env)["text"] == "Hello"


def test_output_is_utf8_in_any_locale(scripted_model: Scripted) -> None:
    model = scripted_model(["é模"], template=TEMPLATE, tail="[reply]")
    env = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = run("chat", "-m", str(model["path"]), "-p", "hi", env=env)
    assert (done.returncode, done.stdout) == (0, "é模\n")
