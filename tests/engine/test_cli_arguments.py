"""Words of the command line to values."""

from __future__ import annotations

import msgspec
import pytest

from engine import cli, sampling
from engine.cli_arguments import clean_text, option_name, parse, sampling_values
from engine.errors import InvalidRequest
from engine.sampling import SamplingParams


def test_every_sampling_parameter_is_an_option() -> None:
    values = {
        "stop": ("a", "b"),
        "dry_sequence_breakers": ("x",),
        "logit_bias": {5: -2.5, 7: 1.0},
        "repeat_last_n": -1,
        "top_n_sigma": -1.0,
    }
    words = ["chat"]
    for field in msgspec.structs.fields(SamplingParams):
        value = values.get(field.name, 1)
        if isinstance(value, tuple):
            words += [word for item in value for word in (option_name(field.name), item)]
        elif isinstance(value, dict):
            words += [word for item in value.items() for word in ("--logit-bias", f"{item[0]}={item[1]}")]
        else:
            words += [option_name(field.name), str(value)]
    params = sampling.from_mapping(sampling_values(parse(words)))
    for field in msgspec.structs.fields(SamplingParams):
        assert getattr(params, field.name) == values.get(field.name, 1), field.name


def test_what_is_not_given_stays_llama_cpps_default() -> None:
    assert sampling_values(parse(["chat", "--top-k", "7"])) == {"top_k": 7}
    assert sampling.from_mapping(sampling_values(parse(["chat"]))) == SamplingParams()


def test_an_infinite_ban_can_be_written_as_json() -> None:
    bias = sampling_values(parse(["chat", "--logit-bias", "5=-inf"]))["logit_bias"]
    assert bias[5] <= -1e9
    assert b"null" not in msgspec.json.encode(bias)


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "-",
        "---",
        "-x",
        "-1",
        "--unknown",
        "",
        " ",
        "a\nb",
        "--prompt=x",
        "@file",
        "%s",
        "日本語 👩‍👩‍👧",
    ],
)
def test_any_text_can_be_a_prompt(text: str) -> None:
    for words in (["--prompt", text], ["-p", text], [f"--prompt={text}"]):
        assert parse(["chat", *words, "--json"]).prompt == text


def test_a_forgotten_value_is_noticed() -> None:
    with pytest.raises(InvalidRequest, match="--prompt"):
        parse(["chat", "--prompt", "--json"])


def test_negative_numbers() -> None:
    options = parse(["chat", "--gpu-layers", "-1", "--repeat-last-n", "-1", "--temperature", "-1"])
    assert (options.gpu_layers, options.repeat_last_n, options.temperature) == (-1, -1, -1.0)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["chat", "--temperature", "warm"], "--temperature"),
        (["chat", "--top-k", "1.5"], "--top-k"),
        (["chat", "--logit-bias", "5"], "--logit-bias"),
        (["chat", "--logit-bias", "x=1"], "--logit-bias"),
        (["chat", "--bogus"], "--bogus"),
        (["chat", "--temp", "1"], "--temp"),
        (["chat", "stray"], "stray"),
        (["sing"], "sing"),
        (["doctor", "--bogus"], "--bogus"),
    ],
)
def test_wrong_words_are_named(words: list[str], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named) as caught:
        parse(words)
    assert "--help" in caught.value.hint


def test_bytes_that_are_no_text() -> None:
    assert clean_text("caf\udce9 ü") == "caf\ufffd ü"


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["chat"], True),
        (["doctor", "--json"], True),
        (["--version"], True),
        (["--self-test"], True),
        (["--help"], True),
        (["-h"], True),
        ([], False),
        (["--temp-home"], False),
        (["model.gguf"], False),
    ],
)
def test_who_answers(words: list[str], ours: bool) -> None:
    assert cli.wants_cli(words) is ours


def test_without_arguments_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "chat" in capsys.readouterr().out
    assert cli.main(["chat", "--help"]) == 0
    assert "--top-n-sigma" in capsys.readouterr().out
