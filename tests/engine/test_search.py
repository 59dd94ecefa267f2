"""Search: what is found, what never is, and that nothing typed is query syntax."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_help import one_transaction

from engine.message import ReasoningPart, TextPart
from engine.store.chats import ChatStore
from engine.store.search import find_marks, make_snippet, match_expression

TEXTS = {
    "pod": "Why did my Kubernetes pod restart? The reason is OOMKilled.",
    "cafe": "Ein Café in Zürich, ΑΘΉΝΑ und ПРИВЕТ",
    "chinese": "我想了解机器学习的基本概念，例如神经网络。",
    "japanese": "東京タワーへ行きたいです。カタカナも",
    "korean": "안녕하세요 세계",
    "thai": "ภาษาไทยไม่มีช่องว่าง",
    "code": 'def snake_case(x): return {"a": x->y} # C++ and C#',
    "emoji": "well done 😀👍🏽",
    "mixed": "GPU显存不足 with 8GB",
    "quote": 'she said "no way" and left; it\'s 100% true',
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    store = ChatStore(tmp_path / "chats.db")
    for name, body in TEXTS.items():
        chat = store.create_chat(name.upper())
        store.add_message(chat.id, None, "user", (ReasoningPart("hiddenthought"), TextPart(body)))
    yield store
    store.close()


def found(store: ChatStore, query: str) -> set[str]:
    return {hit.chat_title.lower() for hit in store.search(query) if hit.message_id is not None}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("kubernetes", {"pod"}),
        ("KUBERN", {"pod"}),
        ("restart pod", {"pod"}),
        ("kubern pod", set()),  # only the last word may be unfinished
        ("pod nothing", set()),
        ("cafe", {"cafe"}),
        ("CAFÉ", {"cafe"}),
        ("zurich", {"cafe"}),
        ("αθηνα", {"cafe"}),
        ("привет", {"cafe"}),
        ("привёт", {"cafe"}),
        ("カタガナ", set()),  # a kana's voicing is no accent
        ("\u1112\u1161\u1109\u1166", {"korean"}),  # the same syllables, taken apart
        ("机器学习", {"chinese"}),
        ("学习", {"chinese"}),
        ("习", {"chinese"}),
        ("神经 基本", {"chinese"}),
        ("习学", set()),
        ("京タワ", {"japanese"}),
        ("カナ", {"japanese"}),
        ("녕하", {"korean"}),
        ("ไทย", {"thai"}),
        ("显存", {"mixed"}),
        ("GPU显", {"mixed"}),
        ("snake_case", {"code"}),
        ("case", {"code"}),
        ("snake-case", {"code"}),
        ("->", {"code"}),
        ("C++", {"code"}),
        ("😀", {"emoji"}),
        ("👍", {"emoji"}),
        ('"no way"', {"quote"}),
        ("it's", {"quote"}),
        ("100%", {"quote"}),
        ("hiddenthought", set()),
        ("", set()),
        ("   ", set()),
    ],
)
def test_what_is_found(store: ChatStore, query: str, names: set[str]) -> None:
    assert found(store, query) == names


@pytest.mark.parametrize(
    "query",
    [
        '"', '""', '"""', "*", "pod*", "*pod", "(", ")", "pod AND", "OR", "NOT pod", "NEAR(pod restart)", "text:pod",
        "pod^2", "^pod", "-pod", "+pod", "{pod}", "rowid:1", "'; DROP TABLE chats; --", "\\", "%", "_", "\0", "pod\0",
        "\ud800", "a" * 100_000, "a " * 100_000, "\u0301", "pod + restart", "message_index MATCH 'x'", ":", "pod:",
    ],
)  # fmt: skip
def test_nothing_typed_is_syntax(store: ChatStore, query: str) -> None:
    store.search(query)
    assert len(store.chats()) == len(TEXTS)


def test_operators_are_words(store: ChatStore) -> None:
    chat = store.create_chat("x")
    made = store.add_message(chat.id, None, "user", (TextPart("this and that or not near"),))
    assert store.search("that OR")[0].message_id == made.id
    assert store.search("NOT near")[0].message_id == made.id
    assert found(store, "pod OR cafe") == set()


def test_one_hit_a_chat_with_the_newest_message_and_a_count(store: ChatStore) -> None:
    chat = store.create_chat("pangolins")
    made = [store.add_message(chat.id, None, "user", (TextPart(f"pangolin {n}"),)).id for n in range(5)]
    [hit] = store.search("pangolin")
    assert (hit.chat_id, hit.message_id, hit.n_matches) == (chat.id, made[-1], 5)
    store.delete_message(made[-1])
    assert store.search("pangolin")[0].message_id == made[-2]
    store.update_message(made[-2], parts=(TextPart("something else"),))
    [hit] = store.search("pangolin")
    assert (hit.message_id, hit.n_matches) == (made[-3], 3)
    store.delete_chat(chat.id)
    assert store.search("pangolin") == []
    store.restore_chat(chat.id)
    assert store.search("pangolin")[0].n_matches == 3


def test_titles_are_found_in_any_part(store: ChatStore) -> None:
    chat = store.create_chat("Überblick: 東京の旅")
    for query in ("berbli", "UBERBLICK", "京の", "旅 über"):
        [hit] = [hit for hit in store.search(query) if hit.chat_id == chat.id]
        assert hit.message_id is None
        assert hit.snippet == chat.title
    assert store.search("überblick")[0].marks == ((0, 9),)


def test_hits_come_in_the_order_of_the_chat_list(store: ChatStore) -> None:
    made = []
    for n in range(5):
        chat = store.create_chat(f"c{n}")
        made.append(store.add_message(chat.id, None, "user", (TextPart("ocelot"),)))
    store.update_message(made[1].id, generation=None, status="complete")
    hits = [hit.chat_id for hit in store.search("ocelot")]
    assert hits == [made[n].chat_id for n in (1, 4, 3, 2, 0)]
    assert [hit.chat_id for hit in store.search("ocelot", limit=2)] == hits[:2]


def test_snippets_are_one_line_around_the_match_with_marks() -> None:
    text = "word " * 500 + "before\n\n  the   Näedle after " + "word " * 500
    for query in ("näedle", "naedle"):
        snippet, marks = make_snippet(text.replace("word ", "w ") if query == "naedle" else text, [query])
        assert "\n" not in snippet
        assert len(snippet) < 140
        assert snippet.startswith("…")
        assert snippet.endswith("…")
        assert [snippet[a:b] for a, b in marks] == ["Näedle"]
    assert make_snippet("short Text", ["text"]) == ("short Text", ((6, 10),))
    assert make_snippet("", ["x"]) == ("", ())
    assert make_snippet("x" * 1_000_000 + " needle", ["needle"])[0].endswith("needle")


def test_marks_count_characters_of_the_original() -> None:
    assert find_marks("ﬃx ﬃ", ["ffi"]) == ((0, 1), (3, 4))
    assert find_marks("aaa", ["aa", "a"]) == ((0, 3),)
    assert find_marks("e\u0301te", ["ete"]) == ((0, 4),)
    assert find_marks("abc", [""]) == ()


def test_the_last_word_is_a_prefix_unless_it_ends_in_a_sign() -> None:
    assert match_expression(["foo", "bar"]) == '"foo" AND "bar"*'
    assert match_expression(["C++"]) == '"C++"'
    assert match_expression(['a"b']) == '"a""b"*'
    assert match_expression(["->"]) == ""


def test_a_broken_index_is_made_anew(store: ChatStore) -> None:
    db = store._db
    assert found(store, "kubernetes") == {"pod"}
    db.run("UPDATE message_index_data SET block = x'5a5a5a5a5a5a' WHERE id > 10")
    assert found(store, "kubernetes") == {"pod"}
    db.run("DELETE FROM message_index_data WHERE id > 10")
    assert found(store, "kubernetes") == {"pod"}
    assert found(store, "学习") == {"chinese"}


def test_the_index_follows_every_change(store: ChatStore) -> None:
    """FTS5's own check: what is in the index equals what the rows say."""
    with one_transaction(store):
        chat = store.create_chat()
        made = [store.add_message(chat.id, None, "user", (TextPart(f"text {n} 学习"),)).id for n in range(50)]
        for n, row_id in enumerate(made):
            if n % 3 == 0:
                store.update_message(row_id, parts=(TextPart(f"changed {n}"),))
            if n % 5 == 0:
                store.delete_message(row_id)
            if n % 7 == 0:
                store.update_message(row_id, status="streaming")
    store.purge_deleted(-1)
    store.mark_interrupted()
    indexed = {row[0] for row in store._db.rows("SELECT rowid FROM message_index")}
    assert indexed == {row[0] for row in store._db.rows("SELECT id FROM messages")}
    before = {q: store.search(q) for q in ("text", "changed", "学习", "t")}
    store._index.rebuild()
    assert {q: store.search(q) for q in before} == before
    store._db.run("INSERT INTO message_index(message_index) VALUES ('integrity-check')")
