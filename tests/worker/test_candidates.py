"""Masks over a vocabulary, and what a sampler chain is shown of it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from engine.worker.candidates import Candidates, Choice, has, pack, tokens_of


@pytest.mark.parametrize("n_vocab", [1, 31, 32, 33, 1000, 4099])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_masks_and_choices_tell_the_same(n_vocab: int, share: float) -> None:
    truth = np.random.default_rng(n_vocab).random(n_vocab) < share
    mask = pack(truth, n_vocab)
    assert mask.dtype == np.uint32 and len(mask) == (n_vocab + 31) // 32
    assert tokens_of(mask).tolist() == np.flatnonzero(truth).tolist()
    assert [has(mask, token) for token in range(n_vocab)] == truth.tolist()
    choice = Choice(mask, n_vocab)
    assert choice.few == (2 * truth.sum() <= n_vocab)
    assert choice.tokens.tolist() == np.flatnonzero(truth if choice.few else ~truth).tolist()
    assert Choice(mask, n_vocab, always_few=True).tokens.tolist() == np.flatnonzero(truth).tolist()


def test_candidates_lie_as_llama_cpp_has_them() -> None:
    class Candidate(ctypes.Structure):
        _fields_ = (("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float))

    logits = np.arange(10, dtype=np.float32) / 2
    candidates = Candidates(10)
    candidates.gather(logits.ctypes.data, np.array([1, 4, 9]))
    found = (Candidate * 3).from_address(candidates.address)
    assert [(one.id, one.logit) for one in found] == [(1, 0.5), (4, 2.0), (9, 4.5)]
    row = candidates.row(logits.ctypes.data)
    row[3] = -np.inf
    assert logits[3] == -np.inf, "the row is where the logits are"


@pytest.mark.parametrize("always_few", [True, False])
@pytest.mark.parametrize("n_allowed", [0, 3, 60, 97, 100])
def test_a_choice_says_what_it_allows(n_allowed: int, always_few: bool) -> None:
    allowed = set(np.random.default_rng(n_allowed).permutation(100)[:n_allowed].tolist())
    choice = Choice(pack((token in allowed for token in range(100)), 100), 100, always_few=always_few)
    assert [choice.allows(token) for token in range(100)] == [token in allowed for token in range(100)]
