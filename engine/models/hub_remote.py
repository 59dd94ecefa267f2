"""Small reads from the hub: a text file, and the front of a model file as if it lay on the disk."""

from __future__ import annotations

import io
import re
from types import TracebackType
from typing import TYPE_CHECKING

from engine.models.http import Access, Fault, Opened, check_status, network_fault, new_client, open_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

FIRST_BYTES = 8 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\Z")


def content_range(value: str | None) -> tuple[int, int, int | None] | None:
    """(first byte, byte after the last, total size or None) of a Content-Range header; None if it is malformed."""
    match = _RANGE.match((value or "").strip())
    if not match:
        return None
    start, end = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if end <= start or (total is not None and end > total):
        return None
    return start, end, total


def pieces(opened: Opened, *, raw: bool = True) -> Iterator[bytes]:
    """The body as it comes; the errors of httpx as faults.

    Raises:
        Fault: "stalled", "cut", "encoded".
    """
    import httpx

    try:
        yield from opened.response.iter_raw() if raw else opened.response.iter_bytes()
    except httpx.TimeoutException as error:
        raise Fault("stalled", f"the server {opened.url.host} stopped sending") from error
    except httpx.RemoteProtocolError as error:
        raise Fault("cut", f"the server {opened.url.host} closed the connection in the middle") from error
    except (httpx.TransportError, OSError) as error:
        raise network_fault(error, opened.url.host) from error
    except httpx.DecodingError as error:
        raise Fault("encoded", f"the server {opened.url.host} sends a packing that cannot be undone") from error


def read_text(url: str, access: Access, max_bytes: int, timeout_s: float) -> str:
    """A text file, cut after `max_bytes`.

    Raises:
        Fault
    """
    with new_client(timeout_s) as client:
        opened = open_url(client, url, access, {"Accept-Encoding": "identity"})
        check_status(opened, url.rpartition("/")[2])
        data = bytearray()
        try:
            for piece in pieces(opened, raw=False):
                data += piece
                if len(data) >= max_bytes:
                    break
        finally:
            opened.close()
    return bytes(data[:max_bytes]).decode("utf-8", "replace")


class RemoteFile(io.RawIOBase):
    """A file on the hub, read forwards from its start; fetched in ranges that double.

    Attributes:
        size_bytes: the whole file, from the first answer.

    Raises:
        Fault: while it is opened or read. Reading past `MAX_BYTES` ends like a file of that size.
    """

    def __init__(self, url: str, access: Access, name: str, timeout_s: float) -> None:
        super().__init__()
        self._client = new_client(timeout_s)
        self._url, self._access, self._name = url, access, name
        self._data = bytearray()
        self._at = 0
        self.size_bytes = -1
        self._etag = ""
        try:
            self._fetch(FIRST_BYTES)
        except BaseException:
            self._client.close()
            raise

    def read(self, size: int = -1) -> bytes:
        end = min(self._at + (size if size >= 0 else MAX_BYTES), self.size_bytes, MAX_BYTES)
        while len(self._data) < end:
            self._fetch(min(len(self._data) * 2, MAX_BYTES))
        piece = bytes(self._data[self._at : end])
        self._at = max(self._at, end)
        return piece

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset < 0:
            raise io.UnsupportedOperation
        self._at = offset
        return offset

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._client.close()
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fetch(self, up_to: int) -> None:
        start = len(self._data)
        headers = {"Range": f"bytes={start}-{up_to - 1}", "Accept-Encoding": "identity"}
        opened = open_url(self._client, self._url, self._access, headers)
        try:
            check_status(opened, self._name)
            self._accept(opened.response, start, up_to)
            for piece in pieces(opened):
                self._data += piece
                if len(self._data) >= up_to:
                    break
        finally:
            opened.close()
        del self._data[up_to:]
        if len(self._data) < min(up_to, self.size_bytes):
            raise Fault("cut", f"the server {opened.url.host} sent less than it announced")

    def _accept(self, response: httpx.Response, start: int, up_to: int) -> None:
        """Checks that the answer is the part that was asked for, and notes the size of the whole."""
        host = response.url.host
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Fault("encoded", f"the server {host} packs the file, which makes its parts useless", retry=False)
        etag = response.headers.get("etag", "")
        if start and etag != self._etag:
            raise Fault("changed", f"{self._name} changed while it was read")
        self._etag = etag
        if response.status_code == 200:
            length = response.headers.get("content-length", "")
            if not length.isdigit():
                raise Fault("lie", f"the server {host} does not tell the size of {self._name}", retry=False)
            self._data.clear()
            total = int(length)
        else:
            told = content_range(response.headers.get("content-range"))
            if told is None or told[0] != start or told[1] > up_to or told[2] is None:
                raise Fault(
                    "lie", f"the server {host} sends another part of {self._name} than was asked for", retry=False
                )
            total = told[2]
        if self.size_bytes not in (-1, total):
            raise Fault("changed", f"{self._name} changed while it was read")
        self.size_bytes = total
