"""What is told of a row of logits is what a plain computation of it says, whatever the vocabulary's size."""

from __future__ import annotations

import numpy as np
import pytest

from engine.worker.tracer import N_CANDIDATES, Distribution


@pytest.mark.parametrize("n_vocab", [5, 100, 1279, 1280, 1281, 32_001, 49_152, 151_936, 262_144])
def test_the_best_tokens_and_the_entropy_are_those_of_a_plain_computation(n_vocab: int) -> None:
    draw = np.random.default_rng(n_vocab)
    look = Distribution(n_vocab)
    row = np.empty(n_vocab, np.float32)  # always the same place, as llama.cpp has it: a look must see what is there now
    for _ in range(5):
        row[:] = draw.normal(0, 3, n_vocab)
        row[draw.integers(0, n_vocab, 3)] = -np.inf
        row[draw.integers(0, n_vocab)] = 9.0
        row[-1] = draw.choice([-5.0, 20.0])  # behind the last whole row of the table, where there is such a place
        token = int(draw.integers(0, n_vocab))
        row[token] = 1.0
        p = np.exp(row.astype(np.float64) - float(row.max()))
        p /= p.sum()

        found = look.look(row.ctypes.data, token)

        order = np.argsort(-row, kind="stable")[:N_CANDIDATES]
        assert [i for i, _ in found.best] == order.tolist()
        there = p[order] > 0
        logprobs = np.array([logprob for _, logprob in found.best])
        assert np.allclose(logprobs[there], np.log(p[order][there]), atol=1e-3)
        assert (logprobs[~there] == -1000.0).all()
        assert found.logprob == pytest.approx(np.log(p[token]), abs=1e-3)
        assert found.entropy_bits == pytest.approx(-(p[p > 0] * np.log2(p[p > 0])).sum(), abs=1e-3)


def test_of_equal_logits_the_token_with_the_lowest_number_comes_first() -> None:
    row = np.full(49_152, -3.0, np.float32)
    row[[40_000, 7, 300]] = 5.0

    found = Distribution(len(row)).look(row.ctypes.data, 7)

    assert [token for token, _ in found.best[:3]] == [7, 300, 40_000]
