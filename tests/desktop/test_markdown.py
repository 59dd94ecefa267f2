"""Markdown to blocks: what a stream gives in the end, what CommonMark says, and what hostile text cannot do."""

from __future__ import annotations

import random
import time

import pytest

from desktop.views.chat.markdown import MarkdownStream, is_allowed_link, parse, parse_whole
from desktop.views.chat.markdown_blocks import Block, CodeBlock, Span, TableBlock, TextBlock, safe_text
from desktop.views.chat.markdown_scan import MAX_LINE, MAX_SEGMENT

CORPUS = {
    "prose": "One **bold *and italic* text** with `code`.\nSecond line\n\nThird ~~gone~~ paragraph  \nhard break\n",
    "headings": "# One\ntext\n## Two\n\nSetext\n===\n\nAlso\n---\n***\n* * *\nend",
    "lists": "- a\n- b\n  more\n\n  para in b\n- c\n\n1. one\n1. two\n\n1. three\n\ntext\n2. no\n\n3) other\n4) x\n",
    "nested": "1. a\n   - b\n     - c\n       text\n   - d\n2. e\n\n   ```py\n   x = 1\n\n   y = 2\n   ```\n3. f\n",
    "fences": "```python\ndef f():\n    return '```'\n\n\n```\nafter\n~~~~ txt\n~~~\n```\n~~~~\n  ```\n  in\n  ```\n",
    "open fence": "text\n```js\nlet x = 1;\n\n",
    "inline fence": "``` not ` a fence\ntext ```\n",
    "tables": "intro\n| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | `x\\|y` |\n\n| q | r |\n|--|--|\n| 1 |\nend\n\n| no | t\n",
    "quotes": "> a\n> - b\n>\n> c\nlazy\n\n> d\n\ntext\n> ```\n> code\n> ```\n",
    "code by indent": "text\n\n    code\n\n    more\n\nend\n\n- x\n\n      code in item\n",
    "links": "[a](https://a.b/c) <https://d.e> https://f.g/h. ![alt](https://x/y.png) [b](javascript:x) mail@x.org\n",
    "html": "<b>bold</b> <script>alert(1)</script>\n\n<div>\nblock\n</div>\n\n<!-- x -->\n&amp; &lt;\n",
    "unsafe": "a\u202eb\u2066c\u2029d\ufffce\x00f\u200bg\r\nnext\rlast",
    "empty item": "-\n- a\n-\n\nb\n\n* \n",
    "rule after list": "- a\n---\n- b\n***\n",
    "mixed": "**Bold:**\n* item one\n* item two\n\t* tab nested\n\nText\n1. x\n```\ncode\n```\n2. y\n",
    "unicode": "歪 😀 👨‍👩‍👧 العربية **עברית** `ñ`\n\n| 列 | b |\n|--|--|\n| 歪 | 😀 |\n",
}


def stream(text: str, cuts: list[int], *, look: bool = False) -> list[Block]:
    made = MarkdownStream()
    out: list[Block] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        made.feed(text[start:end])
        while (blocks := made.next_blocks()) is not None:
            out += blocks
        if look:
            made.tail()
    made.finish()
    while (blocks := made.next_blocks()) is not None:
        out += blocks
    assert made.tail() == []
    return out


@pytest.mark.parametrize("name", CORPUS)
def test_a_stream_ends_like_the_whole_text(name: str) -> None:
    text = CORPUS[name]
    whole = parse(text)
    assert stream(text, list(range(1, len(text))), look=True) == whole
    chance = random.Random(name)
    for _ in range(20):
        cuts = sorted(chance.sample(range(1, len(text)), chance.randint(0, min(30, len(text) - 1))))
        assert stream(text, cuts, look=chance.random() < 0.5) == whole


@pytest.mark.parametrize("name", CORPUS)
def test_cutting_the_text_into_segments_changes_nothing(name: str) -> None:
    assert parse(CORPUS[name]) == parse_whole(CORPUS[name])


def test_all_of_it_together() -> None:
    text = "\n\n".join(CORPUS.values())
    chance = random.Random(7)
    whole = parse(text)
    for _ in range(5):
        assert stream(text, sorted(chance.sample(range(1, len(text)), 200))) == whole


def test_the_tail_is_what_the_end_would_be() -> None:
    text = CORPUS["nested"] + "\n" + CORPUS["tables"]
    for end in range(0, len(text), 7):
        made = MarkdownStream()
        made.feed(text[:end])
        out: list[Block] = []
        while (blocks := made.next_blocks()) is not None:
            out += blocks
        shown = out + made.tail()
        expected = parse(text[:end])
        # only an unfinished line that may become a fence is held back
        if shown != expected:
            assert text[:end].rsplit("\n", 1)[1].strip(" `~") == ""


def test_numbers_go_on_over_cuts_and_begin_anew_after_text() -> None:
    blocks = parse("1. a\n\n1. b\n1. c\n\ntext\n\n1. d\n")
    assert [block.marker for block in blocks if isinstance(block, TextBlock)] == ["1.", "2.", "3.", "", "1."]


def test_start_number_is_kept() -> None:
    assert [b.marker for b in parse("7. a\n8. b\n")] == ["7.", "8."]
    assert [b.marker for b in parse("0. a\n1. b\n")] == ["0.", "1."]


class TestLongText:
    @pytest.mark.parametrize(
        "text",
        [
            "word " * 5_000,
            "x" * 20_000,
            "- " + "item text " * 2_000,
            "line of text\n" * 2_000,
            "> quoted\n" * 3_000,
            "- a\n" + "  - nested item with text\n" * 1_000,
            "| a | b |\n|--|--|\n" + "| 1 | **2** |\n" * 1_000,
        ],
        ids=["line", "no spaces", "item", "lines", "quote", "nested", "table"],
    )
    def test_cuts_by_force_do_not_depend_on_the_portions(self, text: str) -> None:
        whole = parse(text)
        chance = random.Random(3)
        for _ in range(3):
            assert stream(text, sorted(chance.sample(range(1, len(text)), 40))) == whole

    def test_nothing_is_lost_by_force(self) -> None:
        text = "word " * 5_000
        blocks = parse(text)
        assert len(blocks) > 4
        assert "".join(block.text for block in blocks if isinstance(block, TextBlock)).count("word") == 5_000
        assert all(block.joined for block in blocks[1:] if isinstance(block, TextBlock))
        assert max(len(block.text) for block in blocks if isinstance(block, TextBlock)) <= max(MAX_LINE, MAX_SEGMENT)

    def test_a_long_table_goes_on_in_parts_with_the_same_header(self) -> None:
        blocks = parse("| a | b |\n|--|--|\n" + "".join(f"| {i} | x |\n" for i in range(1_000)) + "\nend\n")
        tables = [block for block in blocks if isinstance(block, TableBlock)]
        assert len(tables) > 3
        assert [table.continued for table in tables] == [False] + [True] * (len(tables) - 1)
        assert [row[0][0].text for table in tables for row in table.rows] == [str(i) for i in range(1_000)]
        assert isinstance(blocks[-1], TextBlock) and blocks[-1].text == "end"

    def test_a_long_fence_is_one_block(self) -> None:
        code = "x = 1\n" * 30_000
        assert parse(f"```py\n{code}```\n") == [CodeBlock(code[:-1], "py")]


class TestHostile:
    @pytest.mark.parametrize(
        "text",
        [
            c * 10_000
            for c in (">", "[", "![", "- ", "> - ", "*a_ ", "`a``b", "[a](", "<a ", "&a;", "\\[", "1. ", "[a][")
        ]
        + ["\n".join("  " * i + "- a" for i in range(200)), "a\n" + "=" * 10_000, "|" * 10_000 + "\n" + "|-" * 5_000],
        ids=lambda text: repr(text[:6]),
    )
    def test_deep_or_wild_nesting_takes_no_long_time(self, text: str) -> None:
        made = MarkdownStream()
        made.feed(text)
        worst = 0.0
        while True:
            begin = time.thread_time()
            if made.next_blocks() is None:
                break
            worst = max(worst, time.thread_time() - begin)
        begin = time.thread_time()
        made.tail()
        worst = max(worst, time.thread_time() - begin)
        # typical: below 0.05, ten times that on a busy machine; quadratic behaviour would take tens of seconds
        assert worst < 1.5

    def test_deep_quotes_lose_no_text(self) -> None:
        assert "deep inside" in "".join(
            b.text for b in parse(">" * 10_000 + " deep inside") if isinstance(b, TextBlock)
        )

    def test_pictures_become_text_with_their_address(self) -> None:
        (block,) = parse("![a cat](https://evil.example/x.png)")
        assert isinstance(block, TextBlock)
        assert block.text == "[image: a cat] https://evil.example/x.png"
        assert block.spans[-1].href == "https://evil.example/x.png"

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "data:image/png;base64,AA", "javascript:alert(1)", "x.png"])
    def test_other_pictures_are_plain_text(self, url: str) -> None:
        (block,) = parse(f"![a]({url})")
        assert isinstance(block, TextBlock)
        assert url in block.text and not any(span.href for span in block.spans)

    @pytest.mark.parametrize(
        "url",
        ["javascript:alert(1)", "JaVaScRiPt:x", "file:///x", "data:text/html,x", "vbscript:x", "ftp://x/y", "x.md"],
    )
    def test_links_with_other_schemes_are_text(self, url: str) -> None:
        (block,) = parse(f"[click]({url}) <{url}>")
        assert isinstance(block, TextBlock)
        assert url in block.text and not any(span.href for span in block.spans)

    @pytest.mark.parametrize("url", ["https://a.b/c?d=e&f", "http://a.b", "mailto:a@b.org"])
    def test_links_that_are_links(self, url: str) -> None:
        assert is_allowed_link(url)
        (block,) = parse(f"[click]({url})")
        assert isinstance(block, TextBlock) and block.spans == (Span("click", href=url),)

    def test_file_names_are_no_links(self) -> None:
        (block,) = parse("open main.py, README.md and example.com")
        assert isinstance(block, TextBlock) and not any(span.href for span in block.spans)

    def test_html_is_text(self) -> None:
        (block,) = parse("<img src=https://evil.example/x onerror=alert(1)>")
        assert isinstance(block, TextBlock) and block.text.startswith("<img src=")

    def test_unsafe_characters_are_visible(self) -> None:
        assert safe_text("a\u202eb") == "a[U+202E]b"
        assert safe_text("\x00\x1b") == "\u2400\u241b"
        assert safe_text("\u2029") == "\n"
        assert safe_text("\ud800") == "\ufffd"
        assert safe_text("tab\tnl\n👨\u200d👩 می\u200cخواهم") == "tab\tnl\n👨\u200d👩 می\u200cخواهم"


class TestPlain:
    """What the user typed: only fences are looked for."""

    def test_everything_else_stays(self) -> None:
        text = "# no heading\n\n* no list   two spaces\n<b>x</b> [a](http://b)\n"
        assert parse(text, plain=True) == [TextBlock((Span(text.strip("\n")),))]

    def test_fences_become_code(self) -> None:
        assert parse("look:\n```py\nx\n```\nend", plain=True) == [
            TextBlock((Span("look:"),)),
            CodeBlock("x", "py"),
            TextBlock((Span("end"),)),
        ]
