"""The tokens of a prompt, fragment by fragment.

llama.cpp takes a text apart at its control tokens and tokenizes what stands between them on its own. So the tokens of
such a fragment depend on nothing else in the prompt, and they are remembered: of a long chat only what is new is
tokenized. Each fragment also knows which of its tokens hold which of its bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, Protocol

from engine.chat.marks import TextRange
from engine.worker.control_texts import ControlTexts, Span
from engine.worker.windows import LONG, Known, by_windows

#: characters of text whose tokens are remembered
_REMEMBERED = 8_000_000
#: texts of that many characters are compared with new ones, of which they may be the beginning
_N_LONG = 4
_SPACE = " \t\n\v\f\r"


class Vocab(Protocol):
    """What is needed of a model's vocabulary.

    It may also have `user_defined_texts`: the texts of all tokens of type USER_DEFINED, which llama.cpp recognises in
    any text. With them, role and turn markers of that type are kept out of messages too.
    """

    @property
    def control_texts(self) -> Sequence[str]:
        """Texts of all tokens of type CONTROL or UNKNOWN (those that need `parse_special` to be recognised)."""

    @property
    def adds_bos(self) -> bool:
        """Whether the model wants BOS before a text (`llama_vocab_get_add_bos`)."""

    @property
    def bos_text(self) -> str:
        """Text of the BOS token, "" if there is none."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...

    def piece(self, token: int) -> bytes: ...


class Fragment:
    """A text with its tokens. `ends` are the bytes of the text up to the end of each token, None if that is unknown."""

    def __init__(self, text: str, tokens: Iterable[int], sizes: Sizes) -> None:
        self.text = text
        self.tokens = array("i", tokens)
        self._sizes = sizes
        self._ranges: dict[Span, Span] = {}

    @cached_property
    def ends(self) -> list[int] | None:
        return self._sizes.ends(self.tokens, self.text)

    def token_range(self, start: int, end: int) -> Span:
        """The tokens that hold any of these characters, `end` excluded; an estimate if `ends` is None."""
        key = (start, end)
        if key not in self._ranges:
            self._ranges[key] = self._token_range(start, end)
        return self._ranges[key]

    def _token_range(self, start: int, end: int) -> Span:
        n_tokens = len(self.tokens)
        if start == 0 and end == len(self.text):
            return 0, n_tokens
        if self.ends is None:
            scale = n_tokens / max(1, len(self.text))
            return round(start * scale), round(end * scale)
        first = bisect_right(self.ends, len(self.text[:start].encode())) if start else 0
        last = n_tokens
        if end < len(self.text):
            last = min(n_tokens, bisect_left(self.ends, len(self.text[:end].encode())) + 1)
        return first, max(first, last)


class Sizes:
    """How many bytes each token says."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._known: dict[int, int] = {}

    def ends(self, tokens: Sequence[int], text: str) -> list[int] | None:
        """Bytes of the text up to the end of each token; None where tokens do not say the text as it is."""
        known = self._known
        for token in set(tokens).difference(known):
            known[token] = len(self._vocab.piece(token))
        ends = list(accumulate(map(known.__getitem__, tokens)))
        n_bytes = len(text.encode())
        said = ends[-1] if ends else 0
        if said == n_bytes:
            return ends
        # SentencePiece puts a space before; some control tokens take away white space beside them
        before = 1 if tokens and self._vocab.piece(tokens[0]).startswith(b" ") and text[:1] != " " else 0
        left, right = (len(text) - len(cut) for cut in (text.lstrip(_SPACE), text.rstrip(_SPACE)))
        for gone_left, gone_right in ((0, 0), (left, 0), (0, right), (left, right)):
            for extra in (before, 1):
                if said - extra == n_bytes - gone_left - gone_right:
                    return [max(0, end - extra + gone_left) for end in ends]
            if said == n_bytes - gone_left - gone_right:
                return [end + gone_left for end in ends]
        return None


@dataclass(frozen=True)
class Piece:
    """A fragment in its place: characters `start` to `end` of the prompt, tokens from number `first` on."""

    start: int
    end: int
    first: int
    fragment: Fragment


def token_ranges(pieces: Sequence[Piece], ranges: Sequence[TextRange]) -> tuple[list[TextRange], bool]:
    """The tokens of texts that stand in a prompt, as ranges of tokens, and whether all of them are exact.

    A token that holds the end of one text and the beginning of the next belongs to the first.
    """
    found: list[TextRange] = []
    exact = True
    at = used = 0
    for text in ranges:
        while at < len(pieces) and pieces[at].end <= text.start:
            at += 1
        first = last = -1
        place = at
        while place < len(pieces) and pieces[place].start < text.end:
            piece = pieces[place]
            place += 1
            start, end = max(text.start, piece.start) - piece.start, min(text.end, piece.end) - piece.start
            low, high = piece.fragment.token_range(start, end)
            exact = exact and ((start, end) == (0, len(piece.fragment.text)) or piece.fragment.ends is not None)
            first = piece.first + low if first < 0 else first
            last = piece.first + high
        first = max(first, used)
        if first < last:
            found.append(TextRange(first, last, text.message))
            used = last
    return found, exact


class Fragments:
    """Tokenizes prompts for one vocabulary.

    guard: texts of all that counts as a control token. markers: those of them that llama.cpp recognises in any text.
    """

    def __init__(self, vocab: Vocab, guard: ControlTexts, markers: ControlTexts) -> None:
        self._vocab, self._guard, self._markers = vocab, guard, markers
        self._sizes = Sizes(vocab)
        self._remembered: OrderedDict[tuple[str, str, str], Fragment] = OrderedDict()
        self._n_remembered = 0
        self._long: list[tuple[str, Fragment]] = []
        self._controls: dict[str, Fragment] = {}
        self._strips: dict[tuple[str, str], bool] = {}

    def pieces(self, text: str, genuine: Sequence[Span]) -> Generator[None, None, list[Piece]]:
        """The prompt in pieces, control tokens (at `genuine`) and what is between them; all their tokens in a row are
        those of the prompt. Yields after each bit of work, so that it can be spread."""
        pieces: list[Piece] = []
        at = n_tokens = 0
        before = ""
        if self._wants_bos(text, genuine):
            pieces.append(Piece(0, 0, 0, self._control(self._vocab.bos_text)))
            n_tokens = 1
        for start, end in [*genuine, (len(text), len(text))]:
            control = text[start:end]
            if at < start:
                fragment = yield from self._fragment(text[at:start], before, control)
                pieces.append(Piece(at, start, n_tokens, fragment))
                n_tokens += len(fragment.tokens)
            if control:
                pieces.append(Piece(start, end, n_tokens, self._control(control)))
                n_tokens += len(pieces[-1].fragment.tokens)
            at, before = end, control
        return pieces

    def _wants_bos(self, text: str, genuine: Sequence[Span]) -> bool:
        """Whether the model wants BOS and the template has not written it."""
        bos = self._vocab.bos_text
        if not self._vocab.adds_bos or not bos:
            return False
        if genuine:
            start, end = genuine[0]
            if text[start:end] == bos and not text[:start].strip():
                return False
        return bool(self._control(bos).tokens)

    def _control(self, text: str) -> Fragment:
        if text not in self._controls:
            tokens = self._vocab.tokenize(text, add_special=False, parse_special=True) if text else []
            # BOS alone can come as more than itself, with the space that SentencePiece puts before a text
            tokens = tokens[-1:] if text == self._vocab.bos_text else tokens
            self._controls[text] = Fragment(text, tokens, self._sizes)
        return self._controls[text]

    # ------------------------------------------------------------------ between control tokens

    def _fragment(self, text: str, before: str, after: str) -> Generator[None, None, Fragment]:
        key = (before, text, after)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        tokens: Iterable[int] | None = None
        if not self._guard.find(text):
            if len(text) > LONG:
                tokens = yield from self._by_windows(text, before, after)
            if tokens is None:
                tokens = self._between(before, text, after)
        if tokens is None:
            tokens = self._plain(self._stripped(text, before, after))
        fragment = Fragment(text, tokens, self._sizes)
        self._remember(key, fragment)
        yield
        return fragment

    def _between(self, before: str, text: str, after: str) -> list[int] | None:
        """Tokens of a text between control tokens, which may take away its white space; None if they are not
        recognised there."""
        head, tail = self._control(before).tokens.tolist(), self._control(after).tokens.tolist()
        tokens = self._vocab.tokenize(before + text + after, add_special=False, parse_special=True)
        end = len(tokens) - len(tail)
        if tokens[: len(head)] != head or tokens[end:] != tail or end < len(head):
            return None
        return tokens[len(head) : end]

    def _by_windows(self, text: str, before: str, after: str) -> Generator[None, None, Iterable[int] | None]:
        """Tokens of a long text, in steps; a text that begins like one before it is tokenized from there on."""
        known = Known.best(text, (f for b, f in self._long if b == before))
        return (
            yield from by_windows(
                text,
                known,
                lambda part, first, last: self._between(before if first else "", part, after if last else ""),
                self._sizes.ends,
            )
        )

    def _remember(self, key: tuple[str, str, str], fragment: Fragment) -> None:
        self._remembered[key] = fragment
        self._n_remembered += len(fragment.text)
        if len(fragment.text) > LONG:
            self._long = [*self._long[1 - _N_LONG :], (key[0], fragment)]
        while self._n_remembered > _REMEMBERED and len(self._remembered) > 1:
            _, old = self._remembered.popitem(last=False)
            self._n_remembered -= len(old.text)

    # ------------------------------------------------------------------ with forged control tokens

    def _stripped(self, text: str, before: str, after: str) -> str:
        if before and self._strips_space(before, "right"):
            text = text.lstrip(_SPACE)
        if after and self._strips_space(after, "left"):
            text = text.rstrip(_SPACE)
        return text

    def _strips_space(self, control: str, side: Literal["left", "right"]) -> bool:
        """Whether llama.cpp takes away white space on that side of a control token (its LSTRIP, RSTRIP flags)."""
        key = (control, side)
        if key not in self._strips:
            beside = "\n" + control if side == "left" else control + "\n"
            self._strips[key] = self._genuine(beside) == self._genuine(control)
        return self._strips[key]

    def _genuine(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=True) if text else []

    def _plain(self, text: str) -> list[int]:
        """Tokens of a text in which nothing is a control token or a marker.

        `parse_special=False` is enough for control tokens. Markers are recognised all the same, so they are cut
        apart after their first character.
        """
        cuts = [start + 1 for start, _ in self._markers.find(text)]
        tokens: list[int] = []
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            part = self._vocab.tokenize(text[start:end], add_special=False, parse_special=False)
            if start > 0 and self._puts_space:
                # tokenized behind a line break, of which no token reaches into the next character
                line_break = self._vocab.tokenize("\n", add_special=False, parse_special=False)
                behind = self._vocab.tokenize("\n" + text[start:end], add_special=False, parse_special=False)
                part = behind[len(line_break) :] if behind[: len(line_break)] == line_break else part
            tokens += part
        return tokens

    @cached_property
    def _puts_space(self) -> bool:
        """Whether the vocabulary puts a space before every text (SentencePiece)."""
        tokens = self._vocab.tokenize("x", add_special=False, parse_special=False)
        return bool(tokens) and self._vocab.piece(tokens[0]).startswith(b" ")
