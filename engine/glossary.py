"""The words of this field, explained: terms from resources/glossary, found by id or by searching.

A translation is a file of the same shape beside `en.json` with the same ids. What it lacks is taken from English.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from functools import cache

import msgspec

import resources

ENGLISH = "en"


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One word.

    Attributes:
        id: what code calls it; the same in every language. term: as it is written on screen.
        group: which part of the field it belongs to, a key of `Glossary.groups`.
        short: one sentence, for tooltips. long: plain paragraphs.
        aliases: other words for it, for searching. see: ids of terms that go with it.
        live: sentences about this computer and the loaded model, with names of facts in braces. One is shown when all
            of its facts are known.
    """

    id: str
    term: str
    group: str
    short: str
    long: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    live: tuple[str, ...] = ()


class Glossary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file as it is on disk. groups: id -> heading."""

    language: str
    groups: dict[str, str]
    terms: tuple[Term, ...]


def decode(data: bytes) -> Glossary:
    """The content of a file.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError: it is not of that form.
    """
    return msgspec.json.decode(data, type=Glossary)


@cache
def load(language: str = ENGLISH) -> Glossary:
    """All terms in alphabetical order; in English what has not been translated.

    Args:
        language: as in the name of the file, "en". One that is not there is English.
    """
    english = decode(resources.data(f"glossary/{ENGLISH}.json"))
    chosen = english
    if language != ENGLISH:
        try:
            chosen = decode(resources.data(f"glossary/{language}.json"))
        except FileNotFoundError:
            language = ENGLISH
    by_id = {term.id: term for term in (*english.terms, *chosen.terms)}
    ordered = sorted(by_id.values(), key=lambda term: term.term.casefold())
    return Glossary(language, {**english.groups, **chosen.groups}, tuple(ordered))


@cache
def _by_id(language: str) -> dict[str, Term]:
    return {term.id: term for term in load(language).terms}


def terms(language: str = ENGLISH) -> tuple[Term, ...]:
    """All terms, in alphabetical order."""
    return load(language).terms


def term(term_id: str, language: str = ENGLISH) -> Term | None:
    """The term of an id, None if there is none."""
    return _by_id(language).get(term_id)


def short(term_id: str, language: str = ENGLISH) -> str:
    """A term in one sentence, empty if there is no such term."""
    found = term(term_id, language)
    return found.short if found else ""


# ------------------------------------------------------------------ searching

_FOLD = str.maketrans(dict.fromkeys("-_/.,()“”'", " "))


def _folded(text: str) -> str:
    return " ".join(text.casefold().translate(_FOLD).split())


def search(words: str, language: str = ENGLISH) -> tuple[Term, ...]:
    """Terms that hold all of the words, the best first: by name, by other names, by the sentence, by the text.

    Without words all of them, in alphabetical order.
    """
    wanted = _folded(words)
    if not wanted:
        return terms(language)
    ranked = [
        (rank, place, one) for place, one in enumerate(terms(language)) if (rank := _rank(one, wanted)) < _NOWHERE
    ]
    return tuple(one for _, _, one in sorted(ranked, key=lambda item: item[:2]))


_NOWHERE = 99


def _rank(one: Term, wanted: str) -> int:
    """How well a term fits; lower is better."""
    name, others = _folded(one.term), [_folded(alias) for alias in (*one.aliases, one.id)]
    if wanted == name:
        return 0
    if wanted in others:
        return 1
    names = [name, *others]
    # "kv cache" is also found as "kvcache", "top k" as "topk"
    joined = wanted.replace(" ", "")
    if name.replace(" ", "").startswith(joined):
        return 2
    if any(text.replace(" ", "").startswith(joined) for text in others):
        return 3
    if any(wanted in text for text in names):
        return 4
    parts = wanted.split()
    if all(any(part in text for text in names) for part in parts):
        return 5
    said = _folded(one.short)
    if all(part in said or any(part in text for text in names) for part in parts):
        return 6
    whole = f"{' '.join(names)} {said} {_folded(' '.join(one.long))}"
    return 7 if all(part in whole for part in parts) else _NOWHERE


# ------------------------------------------------------------------ live examples


def facts_in(template: str) -> tuple[str, ...]:
    """Names of the facts that a live sentence needs."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(template) if name)


def live(one: Term, facts: Mapping[str, str]) -> tuple[str, ...]:
    """The term's live sentences whose facts are all known, filled in."""
    return tuple(
        template.format_map(facts) for template in one.live if all(facts.get(name) for name in facts_in(template))
    )
