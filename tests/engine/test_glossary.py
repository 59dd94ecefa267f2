"""The glossary: sound by its schema, complete in itself, found by what people type."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

import resources
from engine import glossary
from engine.glossary import Glossary

TERMS = glossary.terms()


def test_the_schema_beside_it_is_its_own() -> None:
    assert json.loads(resources.text("glossary/schema.json")) == json.loads(json.dumps(msgspec.json.schema(Glossary)))


def test_there_are_about_as_many_terms_as_the_field_needs() -> None:
    assert len(TERMS) >= 120
    assert len({term.id for term in TERMS}) == len(TERMS)
    assert [term.term.casefold() for term in TERMS] == sorted(term.term.casefold() for term in TERMS)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.id)
def test_a_term_is_complete_and_its_links_lead_somewhere(term: glossary.Term) -> None:
    groups = glossary.load().groups
    assert term.group in groups
    assert re.fullmatch(r"[a-z0-9_]+", term.id)
    assert term.short.endswith(".") and len(term.short) <= 150
    assert term.long and all(text.endswith((".", ".”")) for text in term.long)
    assert 80 <= len(" ".join(term.long)) <= 900
    assert term.see and term.id not in term.see and len(set(term.see)) == len(term.see)
    assert all(glossary.term(other) for other in term.see)
    assert "!" not in term.short + " ".join(term.long)


def test_every_term_is_reached_from_another_one() -> None:
    linked = {other for term in TERMS for other in term.see}
    assert [term.id for term in TERMS if term.id not in linked] == []


def test_no_name_means_two_things() -> None:
    names = [name.casefold() for term in TERMS for name in {term.term, *term.aliases}]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("kv cache", "kv_cache"),
        ("KVCACHE", "kv_cache"),
        ("ngl", "offload"),
        ("n_gpu_layers", "offload"),
        ("q4_k_m", "quant_names"),
        ("moe", "moe"),
        ("mixture", "moe"),
        ("ttft", "ttft"),
        ("Top-K", "top_k"),
        ("topk", "top_k"),
        ("yarn", "rope_scaling"),
        ("made up", "hallucination"),
        ("pipeline parallelism", "layer_split"),
        ("bpw", "bits_per_weight"),
    ],
)
def test_what_people_type_finds_it(typed: str, first: str) -> None:
    assert glossary.search(typed)[0].id == first


def test_searching_takes_all_words_and_nothing_finds_nothing() -> None:
    assert glossary.search("") == TERMS
    assert glossary.search("  ") == TERMS
    assert glossary.search("xyzzy") == ()
    assert {"kv_type", "kv_cache"} <= {term.id for term in glossary.search("values keys")}


def test_a_live_sentence_is_shown_only_when_all_its_facts_are_known() -> None:
    term = glossary.term("kv_cache")
    assert term is not None
    facts = {"n_ctx": "8,192"}
    assert glossary.live(term, facts) == ()
    facts["kv_used"] = "1,204"
    assert glossary.live(term, facts) == ("Your KV cache now holds 1,204 of 8,192 tokens.",)
    assert glossary.live(term, {**facts, "kv_used": ""}) == ()


def test_a_language_without_a_file_is_english() -> None:
    assert glossary.load("xx") == glossary.load()


def test_what_is_not_translated_stays_english(monkeypatch: pytest.MonkeyPatch) -> None:
    real = resources.data
    token = {"id": "token", "term": "Marke", "group": "text", "short": "Ein Stück Text.", "long": ["Lang."]}
    file = {"language": "de", "groups": {"text": "Text"}, "terms": [token]}

    def data(name: str) -> bytes:
        return json.dumps(file).encode() if name == "glossary/de.json" else real(name)

    monkeypatch.setattr(resources, "data", data)
    glossary.load.cache_clear()
    glossary._by_id.cache_clear()
    try:
        assert glossary.short("token", "de") == "Ein Stück Text."
        assert glossary.short("kv_cache", "de") == glossary.short("kv_cache")
        assert len(glossary.terms("de")) == len(TERMS)
    finally:
        glossary.load.cache_clear()
        glossary._by_id.cache_clear()
