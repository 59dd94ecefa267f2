"""One file on the hub as a source of byte ranges: the link to the storage, and checks of every answer.

The link that the hub redirects to is used for all parts of the file, without the token; when it has expired the hub is
asked for a new one.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.models import safe_names
from engine.models.http import Access, Fault, Opened, check_status, network_fault, open_url
from engine.models.hub_remote import content_range, pieces

if TYPE_CHECKING:
    import httpx

BUFFER_BYTES = 1024 * 1024
#: below this the rest of a body comes through httpx, and its connection can be used again
_DIRECT_FROM = 4 * BUFFER_BYTES


@dataclass(frozen=True)
class FileOnHub:
    """What is known of a file before the first byte."""

    url: str
    name: str
    revision: str
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True)
class Link:
    url: str
    at_hub: bool


class Body:
    """The bytes of one answer. `close` may be called from any thread and ends a read that waits."""

    def __init__(self, opened: Opened, length: int, link: Link, *, raw: bool, stall_s: float) -> None:
        self.opened, self.length, self.link, self.raw, self.stall_s = opened, length, link, raw, stall_s

    def chunks(self, buffer: bytearray) -> Iterator[memoryview | bytes]:
        """The body in pieces; each is only valid until the next one.

        Raises:
            Fault: "cut", "stalled", "network", "encoded".
        """
        stream = pieces(self.opened, raw=self.raw)
        left = self.length
        for piece in stream:
            yield piece
            left -= len(piece)
            sock = self._plain_socket() if self.raw and left >= _DIRECT_FROM else None
            if sock is not None:
                # What httpx had buffered is out with the first piece; from here the connection holds nothing but
                # body bytes. Reading them into one buffer costs half of what passing them through httpx does.
                yield from self._direct(sock, left, buffer)
                return

    def _direct(self, sock: socket.socket, left: int, buffer: bytearray) -> Iterator[memoryview]:
        view = memoryview(buffer)
        host = self.opened.url.host
        try:
            sock.settimeout(self.stall_s)
            while left:
                n = sock.recv_into(view[: min(left, len(buffer))])
                if not n:
                    raise Fault("cut", f"the server {host} closed the connection in the middle")
                left -= n
                yield view[:n]
        except TimeoutError as error:
            raise Fault("stalled", f"the server {host} stopped sending") from error
        except OSError as error:
            raise network_fault(error, host) from error

    def _stream(self) -> Any:
        return self.opened.response.extensions.get("network_stream")

    def _plain_socket(self) -> socket.socket | None:
        """The socket to read the body from, if the body is nothing but `length` bytes on it."""
        headers, stream = self.opened.response.headers, self._stream()
        if "transfer-encoding" in headers or "content-length" not in headers or stream is None:
            return None
        if self.opened.response.http_version not in ("HTTP/1.1", "HTTP/1.0"):
            return None
        sock, tls = stream.get_extra_info("socket"), stream.get_extra_info("ssl_object")
        if not isinstance(sock, socket.socket):
            return None
        if self.opened.url.scheme == "http":
            return sock if tls is None and not isinstance(sock, ssl.SSLSocket) else None
        # TLS within TLS (through a proxy with TLS) is decrypted above the socket, by an ssl.SSLObject
        return sock if isinstance(sock, ssl.SSLSocket) and not isinstance(tls, ssl.SSLObject) else None

    def interrupt(self) -> None:
        """Wakes the thread that reads."""
        stream = self._stream()
        sock = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(sock, socket.socket):
            try:
                # on the plain socket also below TLS: only the reader may touch the TLS state
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except (OSError, ValueError):  # closed already
                pass

    def close(self) -> None:
        self.opened.close()


class Source:
    """Opens ranges of one file. Any thread may call it.

    Attributes:
        etag: of the storage's file; "" until known.
        ranges: False once the server has shown that it gives whole files only.
    """

    def __init__(self, client: httpx.Client, access: Access, file: FileOnHub, *, etag: str, stall_s: float) -> None:
        self.client, self.access, self.file, self.stall_s = client, access, file, stall_s
        self.etag, self.ranges = etag, True
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._lies = 0

    def drop_link(self, link: Link | None) -> None:
        """Asks the hub again the next time, unless somebody did already."""
        with self._lock:
            if self._link is link or link is None:
                self._link = None

    def forget(self) -> None:
        """The file is fetched from its beginning again: what was known of its version no longer holds."""
        with self._lock:
            self.etag = ""

    def open(self, start: int, end: int) -> Body:
        """Bytes [start, end); with `ranges` off always the whole file.

        Raises:
            Fault
        """
        headers = {"Accept-Encoding": "identity"}
        if self.ranges:
            headers["Range"] = f"bytes={start}-{end - 1}"
        if self.ranges and self.etag and not self.etag.startswith("W/"):
            headers["If-Range"] = self.etag
        opened, link = self._open(headers)
        try:
            length, raw = self._accept(opened, start, end)
        except BaseException:
            opened.close()
            raise
        return Body(opened, length, link, raw=raw, stall_s=self.stall_s)

    def _open(self, headers: dict[str, str]) -> tuple[Opened, Link]:
        with self._lock:
            link = self._link
            if link is None:  # others wait here, and use the link that this one finds
                opened = open_url(self.client, self.file.url, self.access, headers)
                check_status(opened, self.file.name)
                try:
                    self._check_hub(opened)
                except BaseException:
                    opened.close()
                    raise
                link = self._link = Link(str(opened.url), opened.at_hub)
                return opened, link
        opened = open_url(self.client, link.url, self.access, headers, at_hub=link.at_hub)
        try:
            check_status(opened, self.file.name)
        except Fault as fault:
            if fault.kind == "expired":
                self.drop_link(link)
            raise
        return opened, link

    def _check_hub(self, opened: Opened) -> None:
        """The hub's own headers must speak of the file that was listed."""
        commit = opened.hub_headers.get("x-repo-commit", "")
        if safe_names.is_commit(self.file.revision) and commit and commit != self.file.revision:
            raise Fault("other", f"the hub answers with another version of {self.file.name}", retry=False)
        size = opened.hub_headers.get("x-linked-size", "")
        if size.isdigit() and int(size) != self.file.size_bytes:
            raise Fault("other", f"the hub's {self.file.name} has another size than it listed", retry=False)
        told = opened.hub_headers.get("x-linked-etag", "").strip('"').lower()
        if self.file.sha256 and safe_names.is_sha256(told) and told != self.file.sha256:
            raise Fault("other", f"the hub's {self.file.name} has another hash than it listed", retry=False)

    def _accept(self, opened: Opened, start: int, end: int) -> tuple[int, bool]:
        """Checks an answer; returns the bytes that it promises, and whether they come as they are."""
        response, host, name = opened.response, opened.url.host, self.file.name
        packed = response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
        if response.status_code == 206:
            told = content_range(response.headers.get("content-range"))
            fits = told is not None and told[0] == start and told[1] <= end and told[2] in (None, self.file.size_bytes)
            if packed or not self.ranges or not fits or told is None or not self._length_is(response, told[1] - start):
                raise self._lie(f"the server {host} sends another part of {name} than was asked for")
            self._check_etag(response, name)
            return told[1] - start, True
        if not self.ranges or (start == 0 and end == self.file.size_bytes and not packed):
            if not packed and not self._length_is(response, self.file.size_bytes):
                raise Fault("other", f"{name} has another size at {host} than the hub listed", retry=False)
            self.etag = response.headers.get("etag", "")
            return self.file.size_bytes, not packed
        etag = response.headers.get("etag", "")
        if self.etag and etag and etag != self.etag and not packed:
            raise Fault("changed", f"{name} at {host} is another file than before")
        raise Fault("whole", f"the server {host} gives only the whole of {name}")

    def _length_is(self, response: httpx.Response, expected: int) -> bool:
        told = response.headers.get("content-length")
        return told is None or told == str(expected)

    def _check_etag(self, response: httpx.Response, name: str) -> None:
        etag = response.headers.get("etag", "")
        with self._lock:
            if not self.etag:
                self.etag = etag[:256]
            elif etag and etag.removeprefix("W/") != self.etag.removeprefix("W/"):
                raise Fault("changed", f"{name} is another file than before")

    def _lie(self, text: str) -> Fault:
        """Once may be an accident on the way; a server that does it again is asked for the whole file only."""
        self._lies += 1
        return Fault("whole" if self._lies > 1 and self.ranges else "lie", text)
