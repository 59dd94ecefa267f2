"""States of chats on disk: written when a slot is given up, read when the chat goes on.

A state is only of use to the same model, llama.cpp build and cache settings; the file says which (`identity`). It also
says how long it is and has a checksum, so that one that was cut or damaged is known before llama.cpp sees it. One that
ends the process all the same is not tried again: while it is put back it has another name.

Nothing here waits for a disk on the owner thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
import numpy as np

from engine import events, kv_files
from engine.errors import EngineError
from engine.models.gguf import shard_paths
from engine.paths import make_private_folder
from engine.worker.checkpoints import SavedState
from engine.worker.llama import LlamaModel, version
from engine.worker.protocol import Load

_MAGIC = b"INGLEKV1"
_FORMAT = 1
_HEAD = struct.Struct("<8sII")  # magic, length and checksum of what describes the rest
_MAX_DESCRIPTION = 1 << 20
_PIECE = 1 << 20
_KEEP_FREE = 1 << 30
_PENDING_BYTES = 2 << 30
_NICE = 10


class _Description(msgspec.Struct, frozen=True):
    """identity: whom it is for. sizes: bytes of the parts behind it (tokens, state, checkpoints). checksum: theirs."""

    identity: str
    n_tokens: int
    sizes: tuple[int, ...]
    checkpoints: tuple[int, ...]
    checksum: int


class KvDisk:
    """The states in one folder, for one loaded model.

    Args:
        note: takes a line for the log; called from any thread.

    Attributes:
        folder: where they are.
        identity: a text that differs where a state would not fit; changes with the scales of adapters.
    """

    def __init__(self, folder: Path, cap_bytes: int, identity: str, note: Callable[[str], None]) -> None:
        self.identity, self.folder = identity, folder
        self._cap, self._note = cap_bytes, note
        self._reader = ThreadPoolExecutor(1, "kv-read")
        self._writer = ThreadPoolExecutor(1, "kv-write", initializer=_be_nice)
        self._lock = threading.Lock()
        self._pending: dict[Path, SavedState] = {}
        self._writer.submit(self._tidy)

    # ------------------------------------------------------------------ for the owner thread

    def has(self, key: str) -> bool:
        path = self._path(key)
        return path in self._pending or path.exists()

    def read(self, key: str) -> Future[SavedState | None]:
        """The state of a chat; None if there is none that can be used."""
        path = self._path(key)
        with self._lock:
            pending = self._pending.get(path)
        if pending is not None:
            ready: Future[SavedState | None] = Future()
            ready.set_result(pending)
            return ready
        return self._reader.submit(self._read, path, self.identity)

    def write(self, key: str, saved: SavedState) -> bool:
        """Keep a state; it is on disk some time later. False if too many are on their way, or it is too large."""
        path = self._path(key)
        with self._lock:
            waiting = sum(s.n_bytes for s in self._pending.values())
            if saved.n_bytes > self._cap or (self._pending and waiting + saved.n_bytes > _PENDING_BYTES):
                return False
            self._pending[path] = saved
        self._writer.submit(self._write, path, self.identity, saved)
        return True

    @contextlib.contextmanager
    def trying(self, key: str) -> Iterator[None]:
        """While the state of this chat is put back into a context."""
        path = self._path(key)
        aside = path.with_suffix(kv_files.TRIED)
        with contextlib.suppress(OSError):
            path.rename(aside)
        yield
        with contextlib.suppress(OSError):
            os.utime(aside)  # the ones used last stay longest
            aside.rename(path)

    def forget(self, key: str) -> None:
        """Delete what is kept of a chat, also what is on its way to the disk."""
        with self._lock:
            for path in [p for p in self._pending if kv_files.belongs_to(p, key)]:
                del self._pending[path]
        self._writer.submit(kv_files.forget, self.folder, key)

    def clear(self) -> None:
        """Delete all, also what is on its way to the disk."""
        with self._lock:
            self._pending.clear()
        self._writer.submit(kv_files.clear, self.folder)

    def settle(self, within_s: float = 10.0) -> None:
        """Wait until what was to be written, forgotten and tidied up so far is, but not longer than this."""
        wait((self._writer.submit(lambda: None),), within_s)

    def close(self, within_s: float) -> None:
        """Wait for what is being written, not longer than this."""
        with contextlib.suppress(RuntimeError):  # it was closed before
            self.settle(within_s)
        self._writer.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _path(self, key: str) -> Path:
        return kv_files.path_of(self.folder, key, self.identity)

    # ------------------------------------------------------------------ on the other threads

    def _tidy(self) -> None:
        """Delete what no worker finished, and what another build of llama.cpp has written."""
        build = self.identity.rpartition("/")[2]
        for path in kv_files.ours(self.folder):
            if path.suffix != kv_files.SUFFIX:
                self._remove(path, "was not finished")
                continue
            try:
                with path.open("rb") as file:
                    found = _describe(file.read(_HEAD.size + 4096))
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                self._remove(path, "is damaged")
                continue
            if found.identity.rpartition("/")[2] != build:
                self._remove(path, "is of another build of llama.cpp")

    def _read(self, path: Path, identity: str) -> SavedState | None:
        try:
            return _load(path, identity)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, MemoryError) as error:
            self._remove(path, f"cannot be used ({error})")
            return None

    def _write(self, path: Path, identity: str, saved: SavedState) -> None:
        with self._lock:
            if self._pending.get(path) is not saved:
                return  # forgotten, or a newer one follows
        part = path.with_suffix(kv_files.PART)
        try:
            make_private_folder(self.folder)
            if self._make_room(path, saved.n_bytes):
                _store(part, identity, saved)
                with self._lock:
                    wanted = self._pending.get(path) is saved
                if wanted:
                    part.replace(path)
        except (OSError, EngineError) as error:
            self._note(f"The state of a chat cannot be kept on disk: {error}")
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
            with self._lock:
                if self._pending.get(path) is saved:
                    del self._pending[path]

    def _make_room(self, own: Path, n_bytes: int) -> bool:
        """Delete the ones that were not used for longest until this one fits. False if it cannot."""
        found = []
        for path in kv_files.ours(self.folder):
            with contextlib.suppress(OSError):
                about = path.stat()
                if path != own:
                    found.append((about.st_mtime, about.st_size, path))
        total = sum(size for _, size, _ in found) + n_bytes
        for _, size, path in sorted(found):
            if total <= self._cap:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
        free = shutil.disk_usage(self.folder).free
        return total <= self._cap and free > n_bytes + _KEEP_FREE

    def _remove(self, path: Path, why: str) -> None:
        """Said once: two threads may find the same fault."""
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(f"The kept state {path.name} {why} and cannot be removed ({error.strerror})")
            return
        self._note(f"The kept state {path.name} {why}; it was removed")


def of_load(request: Load, model: LlamaModel, about: events.ModelInfo, note: Callable[[str], None]) -> KvDisk | None:
    """Where states of this model are kept; None if nowhere."""
    if not request.kv_folder:
        return None
    try:
        identity = identity_of(request, model, about)
    except OSError as error:
        note(f"States of chats are not kept on disk: the model file cannot be read again ({error})")
        return None
    return KvDisk(Path(request.kv_folder), request.kv_cap_bytes, identity, note)


def identity_of(request: Load, model: LlamaModel, about: events.ModelInfo) -> str:
    """What has to be the same for a state to fit; how many tokens the context holds does not matter.

    Raises:
        OSError: the model's file cannot be read.
    """
    build = version()
    what = (
        _FORMAT,
        _fingerprint(shard_paths(request.path)),
        model.adapters.key,
        request.kv_type_k,
        request.kv_type_v,
        about.flash_attention,
        request.swa_full,
        about.n_layer,
        about.n_embd,
    )
    return f"{hashlib.sha256(repr((what, build)).encode()).hexdigest()}/{build}"


def _fingerprint(paths: list[Path]) -> str:
    """Says which model the files hold: their sizes and samples of their content."""
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            step = max(_PIECE, size // 16)
            for start in range(0, size, step):
                file.seek(start)
                digest.update(file.read(_PIECE // 4))
    return digest.hexdigest()


def _parts(saved: SavedState) -> list[memoryview]:
    tokens = np.asarray(saved.tokens, np.int32)
    return [tokens.data.cast("B"), saved.state.data, *(state.data for _, state in saved.checkpoints)]


def _store(path: Path, identity: str, saved: SavedState) -> None:
    parts = _parts(saved)
    checksum = 0
    for part in parts:
        for start in range(0, len(part), _PIECE):
            checksum = zlib.crc32(part[start : start + _PIECE], checksum)
            time.sleep(0)  # let the owner thread have the interpreter
    about = _Description(
        identity=identity,
        n_tokens=len(saved.tokens),
        sizes=tuple(map(len, parts)),
        checkpoints=tuple(n for n, _ in saved.checkpoints),
        checksum=checksum,
    )
    text = msgspec.json.encode(about)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0) as file:  # noqa: PTH123
        file.write(_HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text)
        for part in parts:
            for start in range(0, len(part), _PIECE):
                file.write(part[start : start + _PIECE])


def _describe(head: bytes) -> _Description:
    """Raises: ValueError: that is not the beginning of such a file."""
    if len(head) < _HEAD.size:
        raise ValueError("too short")
    magic, length, checksum = _HEAD.unpack_from(head)
    text = head[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or length > _MAX_DESCRIPTION or len(text) != length or zlib.crc32(text) != checksum:
        raise ValueError("not one of ours")
    try:
        return msgspec.json.decode(text, type=_Description)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def _load(path: Path, identity: str) -> SavedState:
    """Raises: OSError; ValueError: it is damaged, or not for us."""
    data = np.fromfile(path, np.uint8)
    about = _describe(bytes(data[: _HEAD.size + _MAX_DESCRIPTION]))
    if about.identity != identity:
        raise ValueError("it is for another model or other settings")
    start = _HEAD.size + int.from_bytes(data[8:12].tobytes(), "little")
    body = data[start:]
    well_formed = len(about.sizes) == 2 + len(about.checkpoints) and min(about.sizes) >= 0
    if not well_formed or sum(about.sizes) != len(body) or about.sizes[0] != 4 * about.n_tokens:
        raise ValueError("its length is wrong")
    checksum = 0
    for at in range(0, len(body), _PIECE):
        checksum = zlib.crc32(body[at : at + _PIECE].data, checksum)
    if checksum != about.checksum:
        raise ValueError("its checksum is wrong")
    ends = np.cumsum((0, *about.sizes)).tolist()
    tokens, state, *rest = (body[a:b] for a, b in itertools.pairwise(ends))
    words = np.frombuffer(tokens.tobytes(), np.int32).tolist()
    return SavedState(words, state, tuple(zip(about.checkpoints, rest, strict=True)))


def _be_nice() -> None:
    """Computing comes before writing to a disk."""
    if sys.platform == "linux":  # elsewhere it would be the whole process, or another one
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
