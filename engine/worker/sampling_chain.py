"""Sampling parameters to a llama.cpp sampler chain.

Order and meaning are those of llama.cpp's own front ends (common/sampling.cpp, `common_sampler_init`): logit bias,
penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature, then the draw. Temperature 0 is greedy
after bias, penalties and DRY. Mirostat takes the place of the truncating samplers.

Under a constraint the chain sees only the tokens that it allows: first the mask, then the samplers of the user.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import llama_cpp.llama_cpp as _llama
import numpy as np

from engine.errors import EngineError
from engine.sampling import SamplingParams
from engine.worker.candidates import Candidates, Choice
from engine.worker.probes import RULED_OUT, Drawn, Probes

if TYPE_CHECKING:
    from engine.worker.constraint import Constraint

_L: Any = _llama
#: llama.cpp draws a seed of its own for this value (`get_rng_seed`), so it cannot be used as a fixed seed
_RANDOM_SEED = 0xFFFFFFFF
_MIROSTAT_M = 100
#: a state of Mirostat in which it leaves both of two tokens
_MANY = 20.0
#: stages that change logits; the others rule tokens out
_CHANGES = ("logit_bias", "penalties", "dry")
_DRAW = "draw"


class SamplerChain:
    """A chain for one request. `free` must be called once; afterwards nothing else may be.

    Args:
        params: checked parameters with their seed set.
        vocab: handle of the model's vocabulary.
        n_ctx: bounds the windows of penalties and DRY: llama.cpp reserves memory for the whole window.
        constraint: what the answer has to follow.
        trace: note how each token is chosen; it changes nothing else.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab: Any,
        n_vocab: int,
        n_ctx: int,
        constraint: Constraint | None = None,
        *,
        trace: bool = False,
    ) -> None:
        self._handle: Any = None
        self._params = params
        self.constraint, self._n_vocab = constraint, n_vocab
        self._candidates = Candidates(n_vocab if constraint is not None else 0)
        self._ahead: Choice | None = None
        self._last: Choice | None = None
        self._needs_gathered = params.typical_p < 1  # it takes the logarithm of every probability, also of 0
        options = _L.llama_sampler_chain_default_params()
        options.no_perf = True
        self._handle = _L.llama_sampler_chain_init(options)
        self._window = 0
        self._probes = Probes(self._append, hides=constraint is not None) if trace else None
        penalties, dry = self._penalties(params, n_vocab, n_ctx), self._dry(params, vocab, n_ctx)
        biases = _biases(params, vocab)
        if self._probes is not None and (penalties or dry or (biases and constraint)):
            self._probes.watch_changes()
            self._add_bias(biases, n_vocab)
        else:
            self._add_bias(biases, n_vocab, alone=True)
        if penalties:
            self._add(penalties, "penalties")
        if dry:
            self._add(dry, "dry")
        seed = params.seed or 0
        if seed == _RANDOM_SEED:
            seed = _RANDOM_SEED - 1
        if params.temperature <= 0:
            self._add(_L.llama_sampler_init_greedy())
        elif params.mirostat:
            self._add_mirostat(params, n_vocab, seed)
        else:
            self._add_truncation(params, seed)
            self._add(_L.llama_sampler_init_temp(params.temperature), "temperature")
            self._add(_L.llama_sampler_init_dist(seed), _DRAW)

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """Show the prompt to the penalties and to DRY, as llama.cpp does, as far as their window reaches."""
        if self._window:
            accept, handle = _L.llama_sampler_accept, self._handle
            for token in tokens[-self._window :]:
                accept(handle, token)

    def sample(self, context: Any, row: int) -> int:
        """Choose a token from the logits of batch entry `row` of the last decode, and accept it.

        Raises:
            GrammarFailed: the constraint allows none.
        """
        token: int
        if self.constraint is None:
            if self._probes is not None:
                self._probes.begin()
            token = _L.llama_sampler_sample(self._handle, context, row)
            return token
        choice = self._last = self._ahead or self._choice(self.constraint)
        token = self._gathered(context, row, choice) if choice.few else self._hiding(context, row, choice)
        self.constraint.accept(token)
        self._ahead = None
        if not self.constraint.complete:
            # what this takes is in the processor's caches now, and would not be after the next step
            with contextlib.suppress(EngineError):  # raised again when the token is wanted
                self._ahead = self._choice(self.constraint)
        return token

    def _choice(self, constraint: Constraint) -> Choice:
        return Choice(constraint.allowed(), self._n_vocab, always_few=self._needs_gathered)

    def force(self, token: int) -> None:
        """Take a token that was not chosen, as if it had been.

        Raises:
            GrammarFailed: the constraint does not allow it.
        """
        _L.llama_sampler_accept(self._handle, token)
        if self.constraint is not None:
            self.constraint.accept(token)
            self._ahead = None

    def drawn(self) -> Drawn | None:
        """How the last token was chosen; None without a trace."""
        return None if self._probes is None else self._probes.drawn(self._last)

    def pass_draws(self, n_draws: int, n_xtc_draws: int = 0) -> None:
        """Go on in the random numbers as if so many tokens had been drawn, and XTC had been asked so often.

        For Mirostat see `learn`.
        """
        names = self.names() if n_draws or n_xtc_draws else []
        for name, count in (("dist", n_draws), ("xtc", n_xtc_draws)):
            if name not in names:
                continue
            sampler = _L.llama_sampler_chain_get(self._handle, names.index(name))
            for _ in range(count):
                two = (_L.llama_token_data * 2)()
                array = _L.llama_token_data_array(data=two, size=2, selected=-1, sorted=True)
                _L.llama_sampler_apply(sampler, ctypes.byref(array))

    def learn(self, surprises: Sequence[float]) -> None:
        """Bring Mirostat to where it is after it has chosen tokens of these surprises, in bits."""
        names = self.names() if surprises else []
        name = next((name for name in names if name.startswith("mirostat")), "")
        if not name:
            return
        sampler = _L.llama_sampler_chain_get(self._handle, names.index(name))
        tau, eta = self._params.mirostat_tau, self._params.mirostat_eta
        mu = _mirostat_mu(sampler, 3 if name == "mirostat" else 2, tau, eta)
        if mu is None:
            return
        state = mu.value
        for surprise in surprises:
            state -= eta * (surprise - tau)
            if surprise > 0:  # of one token that is left nothing is drawn
                mu.value = _MANY
                two = (_L.llama_token_data * 2)((0, 0.0, 0.0), (1, -1.0, 0.0))
                array = _L.llama_token_data_array(data=two, size=2, selected=-1, sorted=True)
                _L.llama_sampler_apply(sampler, ctypes.byref(array))
        mu.value = state

    def _hiding(self, context: Any, row: int, choice: Choice) -> int:
        logits = self._candidates.row(_logits(context, row))
        hidden = logits[choice.tokens]
        logits[choice.tokens] = -np.inf
        try:
            while True:
                if self._probes is not None:
                    self._probes.begin(self._n_vocab - len(choice.tokens))
                token: int = _L.llama_sampler_sample(self._handle, context, row)
                if logits[token] != -np.inf:  # else it was drawn with the probability 0, at odds of 1 to 2^53
                    return token
        finally:
            logits[choice.tokens] = hidden

    def _gathered(self, context: Any, row: int, choice: Choice) -> int:
        self._candidates.gather(_logits(context, row), choice.tokens)
        data = ctypes.cast(self._candidates.address, ctypes.POINTER(_L.llama_token_data))
        array = _L.llama_token_data_array(data=data, size=len(choice.tokens), selected=-1, sorted=False)
        if self._probes is not None:
            self._probes.begin(len(choice.tokens))
        _L.llama_sampler_apply(self._handle, ctypes.byref(array))
        token = int(array.data[max(0, array.selected)].id)
        _L.llama_sampler_accept(self._handle, token)
        return token

    @property
    def complete(self) -> bool:
        """The constraint leaves nothing to come but the end."""
        return self.constraint is not None and self.constraint.complete

    def names(self) -> list[str]:
        """Names of the samplers in order, as llama.cpp reports them."""
        count = _L.llama_sampler_chain_n(self._handle)
        return [_L.llama_sampler_name(_L.llama_sampler_chain_get(self._handle, i)).decode() for i in range(count)]

    def free(self) -> None:
        if self._handle:
            _L.llama_sampler_free(self._handle)
            self._handle = None

    def _append(self, sampler: Any) -> None:
        _L.llama_sampler_chain_add(self._handle, _made(sampler))

    def _add(self, sampler: Any, stage: str = "") -> None:
        """Add a sampler, and behind it what looks at what it has done."""
        self._append(sampler)
        if self._probes is None:
            return
        if stage in _CHANGES:
            self._probes.after_change(stage)
        elif stage == _DRAW:
            self._probes.after_draw()
        elif stage:
            self._probes.after(stage)

    def _add_bias(self, biases: Sequence[tuple[int, float]], n_vocab: int, *, alone: bool = False) -> None:
        """alone: no other sampler changes logits, and the candidates are the whole vocabulary."""
        if not biases:
            return
        array = (_L.llama_logit_bias * len(biases))(*biases)
        sampler = _L.llama_sampler_init_logit_bias(n_vocab, len(biases), array)
        if self._probes is None or not alone:
            self._add(sampler, "logit_bias")
            return
        self._append(sampler)
        banned = {token for token, bias in biases if bias <= RULED_OUT}
        self._probes.after_known_change("logit_bias", len(banned), len({t for t, _ in biases} - banned))

    def _penalties(self, params: SamplingParams, n_vocab: int, n_ctx: int) -> Any:
        """The sampler, None if it would do nothing."""
        window = _window(params.repeat_last_n, n_ctx)
        neutral = params.repeat_penalty == 1.0 and not params.presence_penalty and not params.frequency_penalty
        if not window or neutral:
            return None
        self._window = max(self._window, window)
        return _made(
            _L.llama_sampler_init_penalties(
                n_vocab, window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            )
        )

    def _dry(self, params: SamplingParams, vocab: Any, n_ctx: int) -> Any:
        """The sampler, None if it would do nothing."""
        window = _window(params.dry_penalty_last_n, n_ctx)
        if not window or not params.dry_multiplier:
            return None
        self._window = max(self._window, window)
        # a NUL would end the text inside llama.cpp and leave an empty breaker
        breakers = [b.encode() for b in params.dry_sequence_breakers if "\0" not in b]
        array = (ctypes.c_char_p * max(1, len(breakers)))(*breakers)
        return _made(
            _L.llama_sampler_init_dry(
                vocab,
                params.dry_multiplier,
                params.dry_base,
                params.dry_allowed_length,
                window,
                array,
                len(breakers),
            )
        )

    def _add_mirostat(self, params: SamplingParams, n_vocab: int, seed: int) -> None:
        self._add(_L.llama_sampler_init_temp(params.temperature), "temperature")
        tau, eta = params.mirostat_tau, params.mirostat_eta
        if params.mirostat == 1:
            self._add(_L.llama_sampler_init_mirostat(n_vocab, seed, tau, eta, _MIROSTAT_M), "mirostat")
        else:
            self._add(_L.llama_sampler_init_mirostat_v2(seed, tau, eta), "mirostat")
        if self._probes is not None:
            self._probes.after_draw()

    def _add_truncation(self, params: SamplingParams, seed: int) -> None:
        if params.top_n_sigma >= 0:
            self._add(_L.llama_sampler_init_top_n_sigma(params.top_n_sigma), "top_n_sigma")
        if params.top_k > 0:
            self._add(_L.llama_sampler_init_top_k(params.top_k), "top_k")
        if params.typical_p < 1:
            self._add(_L.llama_sampler_init_typical(params.typical_p, 1), "typical")
        if params.top_p < 1:
            self._add(_L.llama_sampler_init_top_p(params.top_p, 1), "top_p")
        if params.min_p > 0:
            self._add(_L.llama_sampler_init_min_p(params.min_p, 1), "min_p")
        if params.xtc_probability > 0:
            self._add(_L.llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, 1, seed), "xtc")


def _mirostat_mu(sampler: Any, at: int, tau: float, eta: float) -> ctypes.c_float | None:
    """The state of a Mirostat that has chosen nothing yet; None where it is not found.

    llama.cpp shows it to nobody. It stands behind tau and eta, which are in place `at`, and in version 1 behind the
    number of tokens that are looked at.
    """
    behind = 1 if at == 3 else 0
    fields = (ctypes.c_float * (at + 3 + behind)).from_address(sampler.contents.ctx)
    given = (ctypes.c_float * 3)(tau, eta, 2 * ctypes.c_float(tau).value)
    if [fields[at], fields[at + 1], fields[at + 2 + behind]] != list(given):
        return None
    return ctypes.c_float.from_address(ctypes.addressof(fields) + 4 * (at + 2 + behind))


def _made(sampler: Any) -> Any:
    if not sampler:
        raise MemoryError("llama.cpp made no sampler")
    return sampler


def _biases(params: SamplingParams, vocab: Any) -> list[tuple[int, float]]:
    """What the user adds to logits, and the tokens that the model's file says must not come."""
    count = ctypes.c_int32(0)
    suppressed = _L.llama_vocab_get_suppress_tokens(vocab, ctypes.byref(count))
    wanted = [(token, bias) for token, bias in params.logit_bias.items() if bias]
    return [*wanted, *((suppressed[i], float("-inf")) for i in range(count.value))]


def _window(wanted: int, n_ctx: int) -> int:
    return n_ctx if wanted < 0 else min(wanted, n_ctx)


def _logits(context: Any, row: int) -> int:
    """Where the logits of a row lie."""
    return ctypes.cast(_L.llama_get_logits_ith(context, row), ctypes.c_void_p).value or 0
