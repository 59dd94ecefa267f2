"""Naming a file that is not a GGUF file this program reads.

A download that failed often leaves a web page, a pointer or a short text under a model's name. llama.cpp says the
same of all of them; the user needs to know which it is.
"""

from __future__ import annotations

import os
import re
import struct
from typing import NamedTuple

from engine.errors import NotAModel

MAGIC = b"GGUF"
NEWEST_VERSION = 3
OLDEST_VERSION = 2

_HTML = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|\?xml|!--)", re.IGNORECASE)
_LFS = b"version https://git-lfs.github.com/spec/"
_LFS_SIZE = re.compile(rb"^size (\d{1,20})\s*$", re.MULTILINE)
#: magics of the formats before GGUF: ggml, ggmf, ggjt, ggla (as written on little-endian machines)
_BEFORE_GGUF = (b"lmgg", b"fmgg", b"tjgg", b"algg")
_ARCHIVES = {
    b"PK\x03\x04": ("zip", "is a zip archive, perhaps a PyTorch checkpoint, not a GGUF model"),
    b"\x1f\x8b": ("archive", "is a gzip archive, not a GGUF model"),
    b"7z\xbc\xaf\x27\x1c": ("archive", "is a 7z archive, not a GGUF model"),
    b"\xfd7zXZ\x00": ("archive", "is an xz archive, not a GGUF model"),
    b"\x28\xb5\x2f\xfd": ("archive", "is a zstd archive, not a GGUF model"),
    b"BZh": ("archive", "is a bzip2 archive, not a GGUF model"),
    b"Rar!": ("archive", "is a rar archive, not a GGUF model"),
}
_AGAIN = "Download the model again, and check the address: it should end in .gguf."
_GGUF_ONLY = "Inglenook loads GGUF files. Look for a GGUF version of this model."
_SHORT_TEXT = 4096


class _Verdict(NamedTuple):
    kind: str
    what: str
    hint: str
    details: dict[str, object] = {}  # noqa: RUF012 (a NamedTuple's default; nothing writes to it)


def shown(path: str | os.PathLike[str], longest: int = 300) -> str:
    """A path as it may stand in a sentence: no line breaks, control characters or lone surrogates."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in os.fspath(path))
    return text if len(text) <= longest else f"{text[: longest // 3]}…{text[-longest // 2 :]}"


def name_the_kind(path: str | os.PathLike[str], head: bytes, size: int) -> NotAModel | None:
    """What a file is by its first bytes; None if it may be a GGUF file of a version that is read here."""
    verdict = _verdict(head, size)
    if verdict is None:
        return None
    return NotAModel(
        f"{shown(path)} {verdict.what}",
        hint=verdict.hint,
        details={"kind": verdict.kind, "size_bytes": size, **verdict.details},
    )


def _verdict(head: bytes, size: int) -> _Verdict | None:
    if not head:
        return _Verdict("empty", "is empty", _AGAIN)
    if head[:4] == MAGIC:
        return _gguf_version(head)
    if head[:4] in _BEFORE_GGUF:
        what = "is in a format from before GGUF, which llama.cpp gave up in 2023"
        return _Verdict("old_version", what, _GGUF_ONLY)
    if head.startswith(_LFS):
        match = _LFS_SIZE.search(head)
        real = int(match[1]) if match else None
        words = f" of {real:,} bytes" if real is not None else ""
        return _Verdict(
            "lfs_pointer",
            f"is a Git LFS pointer to a file{words}, not the file itself",
            'Fetch it with "git lfs pull", or download the file from its page.',
            {"real_size_bytes": real},
        )
    if _HTML.match(head):
        return _Verdict("html", "is a web page, not a model", _AGAIN)
    return _other_format(head, size)


def _gguf_version(head: bytes) -> _Verdict | None:
    if len(head) < 8:
        return None  # the reader reports the missing rest
    (version,) = struct.unpack_from("<I", head, 4)
    if version and version & 0xFFFF == 0:
        hint = "Look for a file made for ordinary (little-endian) computers."
        return _Verdict("big_endian", "is a GGUF file for big-endian machines", hint)
    if version < OLDEST_VERSION:
        what = f"is a GGUF file of version {version}, which llama.cpp does not read"
        return _Verdict("old_version", what, _GGUF_ONLY, {"version": version})
    if version > NEWEST_VERSION:
        what = f"is a GGUF file of version {version}; this program reads versions up to {NEWEST_VERSION}"
        return _Verdict("future_version", what, "Update Inglenook.", {"version": version})
    return None


def _other_format(head: bytes, size: int) -> _Verdict:
    if len(head) > 9 and head[8:9] == b"{":
        (length,) = struct.unpack_from("<Q", head)
        if 2 <= length <= size - 8:
            return _Verdict("safetensors", "holds weights in the safetensors format", _GGUF_ONLY)
    for magic, (kind, what) in _ARCHIVES.items():
        if head.startswith(magic):
            return _Verdict(kind, what, _GGUF_ONLY)
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return _Verdict("pickle", "is a Python pickle, perhaps an old PyTorch checkpoint", _GGUF_ONLY)
    if size <= _SHORT_TEXT and _is_text(head):
        start = shown(head.decode("utf-8").strip(), 80)
        return _Verdict("other", f"is a short text, not a model: {start}", _AGAIN)
    if not any(head):
        return _Verdict("other", "begins with zeros: its download was not finished", _AGAIN)
    return _Verdict("other", "is not a GGUF file", _GGUF_ONLY, {"first_bytes": head[:8].hex()})


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c in "\r\n\t" for c in text)
