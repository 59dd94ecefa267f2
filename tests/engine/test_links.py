"""Links to models come from web pages: only the one form is taken, everything else is refused with words."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.models.links import MAX_LENGTH, ModelLink, is_link, parse

REPO = "inglenook://models/tiny/Some-Model_1.5-GGUF"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (REPO, ModelLink("tiny/Some-Model_1.5-GGUF")),
        (REPO.replace("inglenook:", "Inglenook:"), ModelLink("tiny/Some-Model_1.5-GGUF")),
        (REPO.replace("models", "MODELS"), ModelLink("tiny/Some-Model_1.5-GGUF")),
        (f"{REPO}?quant=Q4_K_M", ModelLink("tiny/Some-Model_1.5-GGUF", quant="Q4_K_M")),
        (f"{REPO}?quant=ud-q4_k_xl", ModelLink("tiny/Some-Model_1.5-GGUF", quant="UD-Q4_K_XL")),
        (f"{REPO}?file=m-Q5_K_M.gguf", ModelLink("tiny/Some-Model_1.5-GGUF", "m-Q5_K_M.gguf", "Q5_K_M")),
        (
            f"{REPO}?file=UD-Q4_K_XL/m%20%C3%A9-00001-of-00002.gguf",
            ModelLink("tiny/Some-Model_1.5-GGUF", "UD-Q4_K_XL/m é-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ),
        ("inglenook://models/a/b", ModelLink("a/b")),
    ],
)
def test_what_a_link_names(text: str, named: ModelLink) -> None:
    assert is_link(text)
    assert parse(text) == named


HOSTILE = {
    "another host": [
        "inglenook://evil.example/tiny/Model",
        "inglenook://models.evil.example/tiny/Model",
        "inglenook://models:80/tiny/Model",
        "inglenook://someone@models/tiny/Model",
        "inglenook:///models/tiny/Model",
        "inglenook://settings/theme/dark",
        "inglenook:models/tiny/Model",
        "inglenook:/models/tiny/Model",
        "inglenook:",
        "inglenook://",
        "https://models/tiny/Model",
        " inglenook://models/tiny/Model",
    ],
    "path tricks": [
        "inglenook://models/../Model",
        "inglenook://models/tiny/..",
        "inglenook://models/tiny/%2e%2e",
        "inglenook://models/tiny/../../api/whoami",
        "inglenook://models/tiny/Model/resolve/main/x.gguf",
        "inglenook://models/tiny/Model/",
        "inglenook://models//tiny/Model",
        "inglenook://models/tiny",
        "inglenook://models/tiny/Mo%2Fdel",
        "inglenook://models/tiny/Mo\\del",
        "inglenook://models/tiny/a..b",
        "inglenook://models/-tiny/Model",
        "inglenook://models/tiny/Model.git",
        f"{REPO}?file=../secret.gguf",
        f"{REPO}?file=%2e%2e%2fsecret.gguf",
        f"{REPO}?file=a/%2E%2E/b.gguf",
        f"{REPO}?file=/etc/x.gguf",
        f"{REPO}?file=C:%5Cx.gguf",
        f"{REPO}?file=%252e%252e/x.gguf",
        f"{REPO}?file=a//b.gguf",
        f"{REPO}?file=x.exe",
        f"{REPO}?file=",
    ],
    "control characters": [
        "inglenook://models/tiny/Model\n",
        "inglenook://models/tiny/Mo\x00del",
        "inglenook://models/tiny/Mo\x1b[31mdel",
        "inglenook://models/tiny/Mo\u202edel",
        "inglenook://models/tïny/Model",
        f"{REPO}?file=a%0Ab.gguf",
        f"{REPO}?file=a%00.gguf",
        f"{REPO}?file=a%E2%80%AEfugg.gguf",
        f"{REPO}?file=a%FF.gguf",
        f"{REPO}?file=a%zz.gguf",
        "inglenook://models/tiny/Mo del",
    ],
    "too long": [
        REPO + "x" * MAX_LENGTH,
        "inglenook://models/" + "o" * 60 + "/" + "m" * 60,
        f"{REPO}?file=" + "a" * 260 + ".gguf",
        "inglenook:" * 100_000,
    ],
    "more than a name": [
        f"{REPO}?quant=Q4_K_M&file=x.gguf",
        f"{REPO}?quant=Q4_K_M;download=1",
        f"{REPO}?download=1",
        f"{REPO}?",
        f"{REPO}?quant",
        f"{REPO}?quant=",
        f"{REPO}?quant=everything",
        f"{REPO}?quant=--home",
        f"{REPO}#load",
        f"{REPO}?endpoint=http://evil.example",
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in HOSTILE.items() for text in texts])
def test_hostile_links_are_refused_with_words(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text)
    assert caught.value.message.startswith("The link was not opened: it ")
    assert "inglenook://models/OWNER/REPO" in caught.value.hint
    shown = caught.value.details["link"]
    assert len(shown) < 1000 and shown.replace("…", "").isascii() and shown.isprintable()


def test_what_is_no_link_at_all() -> None:
    assert not any(is_link(text) for text in ("", "inglenook", "/models/a.gguf", "C:\\a.gguf", "file:///a.gguf"))
    assert is_link("INGLENOOK://x")
