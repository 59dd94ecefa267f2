"""`inglenook models`: find, download, import, check and delete models. Progress and notes go to standard error."""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine import events
from engine import paths as places
from engine.cli_output import EXIT_STATUS, exit_status, for_terminal, json_line
from engine.errors import EngineError, InvalidRequest, by_code
from engine.fit.words import size_text
from engine.message import ErrorInfo
from engine.model_store import ModelStore
from engine.models.library import LibraryModel
from engine.models.not_gguf import shown
from engine.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.models.hub import RepoInfo
    from engine.models.hub_names import ModelSet

T = TypeVar("T")
_STEP_S = 0.2


def run(options: argparse.Namespace) -> int:
    """One of the subcommands; returns the exit status.

    Raises:
        EngineError
    """
    with _Shop(options) as shop:
        return _COMMANDS[options.action](shop)


class _Shop:
    """The library of the profile, progress on standard error, and waiting that Ctrl+C can end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.paths = places.resolve().ensure()
        self.settings = Settings(self.paths.settings_file)
        self.events: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        self.store = ModelStore(self.paths, self.settings, self.events.put)
        self.progress = Progress()
        self.warned = False

    def __enter__(self) -> _Shop:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.stop()
        self.show()
        self.progress.clear()

    def wait(self, future: Future[T]) -> T:
        """The result of work in the background; its progress is shown meanwhile."""
        while True:
            try:
                return future.result(_STEP_S)
            except FutureTimeout:
                if future.done():  # the work itself timed out
                    raise
                self.show()

    def show(self) -> None:
        """What was sent since the last time. `warned` is True after a warning."""
        while not self.events.empty():
            event = self.events.get()
            if isinstance(event, events.Notice):
                self.warned = self.warned or event.level != "info"
                self.progress.clear()
                sys.stderr.write(f"inglenook: {for_terminal(event.text)}\n")
                sys.stderr.write(f"  {for_terminal(event.hint)}\n" if event.hint else "")
            if isinstance(event, events.VerifyProgress):
                word = "checking" if event.stage == "hash" else "copying"
                self.progress.show(f"{word} {Path(event.path).name}", event.bytes_done, event.bytes_total)

    def say(self, record: Any, lines: Iterable[str]) -> None:
        """The answer: one JSON value, or lines."""
        self.progress.clear()
        if self.options.json:
            sys.stdout.write(json_line(record) + "\n")
        else:
            for line in lines:
                sys.stdout.write(for_terminal(line) + "\n")
        sys.stdout.flush()


class Progress:
    """One line that is written over on a terminal; elsewhere a line every ten per cent."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._length, self._tenth, self._last = 0, -1, 0.0

    def show(self, what: str, done: int, total: int, rest: str = "") -> None:
        share = min(1.0, done / total) if total else 0.0
        text = f"{shown(what, 60)}  {share:4.0%}  {size_text(done)} of {size_text(total)}  {rest}".rstrip()
        if self._terminal:
            if time.monotonic() - self._last >= 0.1 or share == 1:
                self._last = time.monotonic()
                sys.stderr.write("\r" + text.ljust(self._length))
                self._length = len(text)
        elif int(share * 10) != self._tenth:
            self._tenth = int(share * 10)
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._length:
            sys.stderr.write("\r" + " " * self._length + "\r")
            sys.stderr.flush()
        self._length, self._tenth = 0, -1


# ------------------------------------------------------------------ list, search


def _list(shop: _Shop) -> int:
    models: list[LibraryModel] = shop.wait(shop.store.scan() if shop.options.refresh else shop.store.list())
    shop.say(models, _model_lines(models) if models else ["No model yet. Try: inglenook models search"])
    return 0


def _model_lines(models: Iterable[LibraryModel]) -> Iterator[str]:
    for model in models:
        state = "ok" if model.complete and model.problem is None else "unusable" if not model.complete else "damaged"
        if state == "ok" and model.hash_state == "verified":
            state = "verified"
        yield (
            f"{_fit(model.name, 36)}  {model.quantization or '-':<10}  {size_text(model.size_bytes):>9}  {state:<8}  "
            f"{model.source:<11}  {shown(model.path)}"
        )
        if model.problem is not None:
            yield f"    {model.problem.message}"
            if model.problem.hint:
                yield f"    {model.problem.hint}"


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def _search(shop: _Shop) -> int:
    options = shop.options
    words = " ".join(options.query)
    if options.catalog:
        found = shop.store.catalog().search(words)
        lines = [
            f"{_fit(m.id, 28)} {m.n_params / 1e9:6.1f} B  ~{size_text(m.size_bytes()):>8}  {m.licence:<11} {m.summary}"
            for m in found
        ]
        shop.say(found, lines or ["The catalogue has nothing like it."])
        return 0
    page = shop.wait(shop.store.downloads.search(words, sort=options.sort, limit=options.limit))
    lines = [
        f"{_fit(row.repo, 60)}  {row.downloads:>10,}  {row.license or '-':<14}{'  gated' if row.gated else ''}"
        for row in page.rows
    ]
    shop.say(page.rows, lines or ["The hub has nothing like it."])
    return 0


# ------------------------------------------------------------------ pull


def parse_wanted(text: str, endpoint: str = "") -> tuple[str, str, str]:
    """(repository, revision or "", quantization or path or "") of `REPO[:QUANT]`, `REPO/FILE` or a file's address.

    Raises:
        InvalidRequest
    """
    word = text.strip()
    for start in filter(None, (endpoint, "https://huggingface.co", "https://hf.co", "hf.co", "huggingface.co")):
        if word.startswith(f"{start}/"):
            word = word[len(start) + 1 :].partition("?")[0]
            break
    parts = word.split("/")
    revision = ""
    if len(parts) > 4 and parts[2] in ("resolve", "blob"):
        revision = parts[3]
        parts = [*parts[:2], *parts[4:]]
    elif len(parts) > 2 and parts[2] == "tree":
        revision = parts[3] if len(parts) > 3 else ""
        parts = parts[:2]
    if len(parts) < 2 or not all(parts):
        raise InvalidRequest(
            f"{shown(text, 100)} is no repository",
            hint="Give OWNER/NAME, OWNER/NAME:QUANTIZATION, OWNER/NAME/FILE.gguf, or a name that "
            '"inglenook models search --catalog" shows.',
            details={"field": "model"},
        )
    name, _, quant = parts[1].partition(":")
    if len(parts) > 2:
        return f"{parts[0]}/{parts[1]}", revision, "/".join(parts[2:])
    return f"{parts[0]}/{name}", revision, quant


def _pull(shop: _Shop) -> int:
    info, item = _chosen(shop)
    shop.progress.clear()
    sys.stderr.write(f"{info.repo} {for_terminal(item.label)}, {size_text(item.size_bytes)}\n")
    added = shop.wait(shop.store.downloads.add(info, item))
    try:
        done = _follow(shop, added)
    except KeyboardInterrupt:
        shop.progress.clear()
        shop.wait(shop.store.downloads.pause(added.id))
        sys.stderr.write("Paused. The same command goes on where it stopped.\n")
        raise
    model = shop.wait(shop.store.find(done.paths[0]))
    shop.say(model, _model_lines([model]))
    return 0


def _follow(shop: _Shop, download: events.DownloadInfo) -> events.DownloadInfo:
    """Show the progress until the download has ended; raises why it failed."""
    while True:
        if download.status == "done":
            return download
        if download.status in ("failed", "paused") and download.error is not None:
            raise _raised(download.error)
        rest: str = "" if download.status == "running" else download.status
        if download.speed_bps:
            rest = f"{download.speed_bps / 2**20:.1f} MiB/s"
        if download.eta_s:
            rest += f", {_time(download.eta_s)} left"
        if download.error is not None:  # why it stands still
            rest += f": {download.error.message}"
        shop.progress.show(download.repo, download.bytes_done, download.bytes_total, rest)
        download = _next(shop, download)


def _next(shop: _Shop, download: events.DownloadInfo) -> events.DownloadInfo:
    while True:
        try:
            event = shop.events.get(timeout=_STEP_S)
        except queue.Empty:
            continue
        if isinstance(event, events.DownloadChanged) and event.download.id == download.id:
            return event.download


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _raised(info: ErrorInfo) -> EngineError:
    return by_code(info.code)(info.message, hint=info.hint, details=info.details)


def _chosen(shop: _Shop) -> tuple[RepoInfo, ModelSet]:
    """The repository and the set that the user means."""
    from engine.models.hub_names import find_set

    text = shop.options.model
    known = shop.store.catalog().find(text.partition(":")[0]) if "/" not in text else None
    if known is not None:
        text = f"{known.repo}{text[text.index(':') :] if ':' in text else ''}"
    repo, revision, wanted = parse_wanted(text, shop.store.downloads.hub.endpoint)
    info = shop.wait(shop.store.downloads.info(repo, shop.options.revision or revision or "main"))
    sets = [item for item in info.sets if item.complete]
    if not sets:
        raise InvalidRequest(
            f"{repo} holds no complete GGUF model",
            hint=f'Look for a repository with GGUF files: inglenook models search "{repo.partition("/")[2]}"',
            details={"field": "model", "repo": repo},
        )
    item = find_set(info.sets, wanted) if wanted else _best(shop, info, sets)
    if item is None:
        labels = ", ".join(dict.fromkeys(one.label for one in sets))
        raise InvalidRequest(
            f"{repo} holds no {shown(wanted, 100)}", hint=f"It holds: {labels}", details={"field": "model"}
        )
    return info, item


def _best(shop: _Shop, info: RepoInfo, sets: list[ModelSet]) -> ModelSet | None:
    """By the fit; where it cannot be asked, the usual quantization."""
    from engine.fit import machine
    from engine.model_choice import best_set

    if len(sets) == 1:
        return sets[0]
    usual = best_set(sets, None, None)
    if usual is None:
        return None
    first = usual.files[0]
    try:
        header = shop.wait(shop.store.downloads.header(info.repo, info.revision_sha, first.path, first.sha256))
    except EngineError as error:
        sys.stderr.write(f"inglenook: the fit was not asked ({for_terminal(error.message)})\n")
        return usual
    return best_set(sets, header, machine.look())


# ------------------------------------------------------------------ import, verify, rm


def _import(shop: _Shop) -> int:
    found: list[LibraryModel] = []
    for path in shop.options.paths:
        with _cancelling(shop, path):
            models: list[LibraryModel] = shop.wait(shop.store.import_file(path, copy=not shop.options.in_place))
            found += models
    shop.say(found, _model_lines(found))
    return 0


def _verify(shop: _Shop) -> int:
    names = shop.options.models
    if not names:
        names = [model.path for model in shop.wait(shop.store.list()) if model.complete]
    found: list[LibraryModel] = []
    for name in names:
        with _cancelling(shop, name):
            found.append(shop.wait(shop.store.verify(name)))
    shop.say(found, _verify_lines(found))
    wrong = [model for model in found if model.hash_state == "wrong"]
    return exit_status(_raised(ErrorInfo("checksum_mismatch", ""))) if wrong else 0


def _verify_lines(models: Iterable[LibraryModel]) -> Iterator[str]:
    words = {
        "verified": "as it was published",
        "wrong": "DAMAGED: download it again",
        "unverified": "hashed; nothing to compare with",
    }
    for model in models:
        for path, digest in zip(model.files, model.hashes, strict=True):
            yield f"{digest or '-'}  {shown(path)}"
        yield f"    {model.name}: {words[model.hash_state]}"


def _rm(shop: _Shop) -> int:
    gone: list[LibraryModel] = []
    for name in shop.options.models:
        model = shop.wait(shop.store.find(name))
        gone.append(shop.wait(shop.store.trash(model.path)))
    shop.wait(shop.store.empty_trash())
    shop.show()
    lines = [
        f"{model.name}: {'moved to the trash' if model.removable else 'taken off the list; the file stays'}"
        for model in gone
    ]
    shop.say(gone, lines)
    return EXIT_STATUS["storage_failed"] if shop.warned else 0


@contextmanager
def _cancelling(shop: _Shop, path: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        shop.store.cancel(path)
        raise


_COMMANDS: dict[str, Callable[[_Shop], int]] = {
    "search": _search,
    "list": _list,
    "pull": _pull,
    "import": _import,
    "verify": _verify,
    "rm": _rm,
}
