"""A hub on loopback that speaks the real API, and a storage host behind it, both with faults on order.

The hub answers at 127.0.0.1, the storage at localhost on another port: two origins, as in the real world. Faults are
functions in a list; each looks at a `Call` and may change the answer. Bodies live on disk or in memory and are sent
from there, so that large files cost no time.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Stored:
    """A file of a repository: bytes, or a path on disk with a size and hash."""

    data: bytes = b""
    disk: Path | None = None
    lfs: bool = True

    @property
    def size(self) -> int:
        return self.disk.stat().st_size if self.disk else len(self.data)

    @property
    def sha256(self) -> str:
        if not hasattr(self, "_sha"):
            self._sha = hashlib.sha256(self.disk.read_bytes() if self.disk else self.data).hexdigest()
        return self._sha


@dataclass
class Repo:
    files: dict[str, Stored]
    commit: str = COMMIT
    gated: str | bool = False
    private: bool = False
    downloads: int = 10
    likes: int = 1
    tags: list[str] = field(default_factory=lambda: ["gguf", "license:apache-2.0"])
    gguf: dict[str, Any] | None = None
    card: dict[str, Any] | None = None
    #: what the listing says instead of the truth: path -> {"size": n, "sha256": "..."}
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra_names: list[str] = field(default_factory=list)
    hide_sizes: bool = False


@dataclass
class Call:
    """One request, and the answer that is about to be given; faults change it.

    Attributes:
        host: "hub", "storage".
        number: of this request among those to the same host for the same path, from 1.
        start, end: the bytes to send; None for no body of a file.
        cut_at: the connection is closed after this many body bytes.
        stall_at, stall_s: sending stops there for that long.
        drip_s: seconds between single bytes.
        flip_at: position in the file whose byte is sent wrongly.
    """

    host: str
    path: str
    headers: dict[str, str]
    number: int
    status: int = 200
    answer: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: Stored | None = None
    start: int = 0
    end: int = 0
    cut_at: int | None = None
    reset: bool = False
    stall_at: int | None = None
    stall_s: float = 0.0
    drip_s: float = 0.0
    flip_at: int | None = None
    no_length: bool = False

    @property
    def is_file(self) -> bool:
        return self.file is not None

    def fail(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"no") -> None:
        self.status, self.answer, self.body, self.file = status, dict(headers or {}), body, None

    def whole(self) -> None:
        """Answer as a server that does not know ranges."""
        assert self.file is not None
        self.status, self.start, self.end = 200, 0, self.file.size
        self.answer.pop("Content-Range", None)

    def packed(self) -> None:
        assert self.file is not None
        data = gzip.compress(read(self.file, self.start, self.end), 1)
        self.answer["Content-Encoding"] = "gzip"
        self.body, self.file = data, None


Fault = Callable[[Call], None]


def read(file: Stored, start: int, end: int) -> bytes:
    if file.disk is None:
        return file.data[start:end]
    with file.disk.open("rb") as opened:
        opened.seek(start)
        return opened.read(end - start)


class Hub:
    """`with Hub() as hub:` gives a running one. `hub.endpoint`, `hub.repos`, `hub.faults`, `hub.calls`.

    Attributes:
        calls: (host, path, headers) of every request, for assertions.
        tokens: accepted access tokens; a gated or private repository asks for one of them.
        direct: files come from the hub itself, without a redirect.
        links: secrets of links that are still valid; emptied by `expire_links`.
    """

    def __init__(self, repos: dict[str, Repo] | None = None, *, direct: bool = False) -> None:
        self.repos = repos or {}
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, str, dict[str, str]]] = []
        self.tokens = {"hf_good_token_123"}
        self.direct = direct
        self.links: set[str] = set()
        self.page_size = 3
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._made = 0
        self._servers = [_Server(self, "hub"), _Server(self, "storage")]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def storage(self) -> str:
        return f"http://localhost:{self._servers[1].server_port}"

    def __enter__(self) -> Hub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def expire_links(self) -> None:
        with self._lock:
            self.links.clear()

    def new_link(self, repo: str, path: str) -> str:
        with self._lock:
            self._made += 1
            secret = f"s{self._made}"
            self.links.add(secret)
        return f"{self.storage}/{quote(repo)}/{quote(path)}?Signature={secret}"

    def note(self, host: str, path: str, headers: dict[str, str]) -> int:
        with self._lock:
            self.calls.append((host, path, headers))
            plain = path.partition("?")[0]
            self._counts[host, plain] = self._counts.get((host, plain), 0) + 1
            return self._counts[host, plain]

    def file_calls(self, host: str) -> list[dict[str, str]]:
        marks = {"hub": "/resolve/", "storage": "Signature="}
        return [headers for where, path, headers in self.calls if where == host and marks[host] in path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that go away are part of the tests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, host = self.server.hub, self.server.name
        headers = {key.lower(): value for key, value in self.headers.items()}
        call = Call(host, self.path, headers, hub.note(host, self.path, headers))
        if host == "hub":
            _hub_answer(hub, call)
        else:
            _storage_answer(hub, call)
        for fault in list(hub.faults):
            fault(call)
        try:
            self._send(call)
        except OSError:
            self.close_connection = True

    def _send(self, call: Call) -> None:
        length = call.end - call.start if call.file else len(call.body)
        self.send_response_only(call.status)
        for key, value in call.answer.items():
            self.send_header(key, value)
        if call.no_length:
            self.send_header("Connection", "close")
            self.close_connection = True
        elif "Content-Length" not in call.answer:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.flush()
        stop = length if call.cut_at is None else min(length, call.cut_at)
        self._body(call, stop)
        if stop < length:
            self.close_connection = True
            if call.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close() if call.reset else self.connection.shutdown(socket.SHUT_RDWR)

    def _body(self, call: Call, stop: int) -> None:
        at = 0
        marks = sorted({m for m in (call.stall_at, stop) if m is not None and m <= stop})
        for mark in marks:
            self._bytes(call, at, mark)
            at = mark
            if mark == call.stall_at and call.stall_s:
                time.sleep(call.stall_s)

    def _bytes(self, call: Call, start: int, end: int) -> None:
        if call.drip_s:
            for at in range(start, end):
                self.connection.sendall(self._piece(call, at, at + 1))
                time.sleep(call.drip_s)
            return
        file = call.file
        if file is not None and file.disk is not None and call.flip_at is None and hasattr(os, "sendfile"):
            with file.disk.open("rb") as opened:
                at = call.start + start
                while at < call.start + end:
                    at += os.sendfile(self.connection.fileno(), opened.fileno(), at, call.start + end - at)
            return
        step = 1024 * 1024
        for at in range(start, end, step):
            self.connection.sendall(self._piece(call, at, min(at + step, end)))

    def _piece(self, call: Call, start: int, end: int) -> bytes:
        if call.file is None:
            return call.body[start:end]
        data = read(call.file, call.start + start, call.start + end)
        where = -1 if call.flip_at is None else call.flip_at - call.start - start
        if 0 <= where < len(data):
            changed = bytearray(data)
            changed[where] ^= 0x20
            return bytes(changed)
        return data


def _json(call: Call, value: Any, headers: dict[str, str] | None = None) -> None:
    call.status, call.body = 200, json.dumps(value).encode()
    call.answer = {"Content-Type": "application/json", **(headers or {})}


def _hub_answer(hub: Hub, call: Call) -> None:
    parts = urlsplit(call.path)
    path, query = unquote(parts.path), parse_qs(parts.query)
    if path == "/api/models":
        return _search(hub, call, query)
    if match := re.fullmatch(r"/api/models/(.+?)/tree/([^/]+)(?:/.*)?", path):
        return _tree(hub, call, match[1])
    if match := re.fullmatch(r"/api/models/(.+?)(?:/revision/([^/]+))?", path):
        return _model(hub, call, match[1], match[2], query)
    if match := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
        return _resolve(hub, call, match[1], match[2], match[3])
    return call.fail(404)


def _search(hub: Hub, call: Call, query: dict[str, list[str]]) -> None:
    words = (query.get("search") or [""])[0].lower()
    wanted = query.get("filter", [])
    rows = [
        (name, repo)
        for name, repo in hub.repos.items()
        if words in name.lower() and all(tag in repo.tags for tag in wanted)
    ]
    sort = (query.get("sort") or ["downloads"])[0]
    rows.sort(key=lambda row: -(row[1].likes if sort == "likes" else row[1].downloads))
    start = int(base64.b64decode((query.get("cursor") or [""])[0] or b"MA=="))
    size = min(int((query.get("limit") or ["1000"])[0]), hub.page_size)
    expand = set(query.get("expand", []))
    headers = {}
    if start + size < len(rows):
        cursor = quote(base64.b64encode(str(start + size).encode()).decode())
        kept = "&".join(f"{k}={quote(v)}" for k, vs in query.items() if k != "cursor" for v in vs)
        headers["Link"] = f'<{hub.endpoint}/api/models?{kept}&cursor={cursor}>; rel="next"'
    _json(call, [_row(name, repo, expand) for name, repo in rows[start : start + size]], headers)


def _row(name: str, repo: Repo, expand: set[str]) -> dict[str, Any]:
    full = {
        "author": name.partition("/")[0],
        "downloads": repo.downloads,
        "likes": repo.likes,
        "gated": repo.gated,
        "private": repo.private,
        "tags": repo.tags,
        "lastModified": "2026-11-01T10:00:00.000Z",
        "pipeline_tag": "text-generation",
        **({"gguf": repo.gguf} if repo.gguf else {}),
    }
    return {"_id": "1", "id": name, "modelId": name, **{k: v for k, v in full.items() if not expand or k in expand}}


def _may_read(hub: Hub, call: Call, repo: Repo) -> bool:
    token = call.headers.get("authorization", "").removeprefix("Bearer ")
    if token and token not in hub.tokens:
        call.fail(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        return False
    if repo.private and not token:
        call.fail(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        return False
    return True


def _model(hub: Hub, call: Call, name: str, revision: str | None, query: dict[str, list[str]]) -> None:
    repo = hub.repos.get(name)
    if repo is None:
        return call.fail(404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
    if not _may_read(hub, call, repo):
        return None
    if revision not in (None, "main", repo.commit):
        return call.fail(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
    blobs = "blobs" in query
    siblings: list[dict[str, Any]] = [{"rfilename": name} for name in repo.extra_names]
    if blobs and not repo.hide_sizes:
        siblings = [{**s, "size": 1, "lfs": {"size": 1, "sha256": "0" * 64, "pointerSize": 1}} for s in siblings]
    for path, file in repo.files.items():
        entry: dict[str, Any] = {"rfilename": path}
        if blobs and not repo.hide_sizes:
            said = {"size": file.size, "sha256": file.sha256, **repo.listed.get(path, {})}
            entry |= {"size": said["size"], "blobId": "b" * 40}
            if file.lfs:
                entry["lfs"] = {"size": said["size"], "sha256": said["sha256"], "pointerSize": 134}
        siblings.append(entry)
    row = _row(name, repo, set())
    return _json(call, {**row, "sha": repo.commit, "siblings": siblings, "cardData": repo.card})


def _tree(hub: Hub, call: Call, name: str) -> None:
    repo = hub.repos.get(name)
    if repo is None:
        return call.fail(404, {"X-Error-Code": "RepoNotFound"})
    if not _may_read(hub, call, repo):
        return None
    rows = []
    for path, file in repo.files.items():
        row: dict[str, Any] = {"type": "file", "oid": "b" * 40, "size": file.size, "path": path}
        if file.lfs:
            row["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
        rows.append(row)
    return _json(call, rows)


def _resolve(hub: Hub, call: Call, name: str, revision: str, path: str) -> None:
    repo = hub.repos.get(name)
    if repo is None or revision not in ("main", repo.commit):
        return call.fail(404, {"X-Error-Code": "RepoNotFound"})
    if not _may_read(hub, call, repo):
        return None
    if repo.gated and "authorization" not in call.headers:
        return call.fail(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted"})
    file = repo.files.get(path)
    if file is None:
        return call.fail(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
    linked = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes", "ETag": f'"{file.sha256[:40]}"'}
    if file.lfs:
        linked |= {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.sha256}"', "ETag": f'"{file.sha256}"'}
    if file.lfs and not hub.direct:
        call.status, call.body = 302, b"moved"
        call.answer = {**linked, "Location": hub.new_link(name, path), "Set-Cookie": "who=me; Path=/"}
        return None
    return _give(call, file, linked)


def _storage_answer(hub: Hub, call: Call) -> None:
    parts = urlsplit(call.path)
    secret = (parse_qs(parts.query).get("Signature") or [""])[0]
    if secret not in hub.links:
        return call.fail(403, {"Content-Type": "application/xml"}, b"<Error>Request has expired</Error>")
    owner, _, rest = unquote(parts.path).lstrip("/").partition("/")
    name, _, path = rest.partition("/")
    file = hub.repos[f"{owner}/{name}"].files[path]
    return _give(call, file, {"ETag": f'"{file.sha256[:32]}"', "Accept-Ranges": "bytes"})


def _give(call: Call, file: Stored, headers: dict[str, str]) -> None:
    call.file, call.answer, call.start, call.end = file, dict(headers), 0, file.size
    call.answer["Content-Type"] = "application/octet-stream"
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("range", ""))
    condition = call.headers.get("if-range")
    if not match or (condition and condition != headers["ETag"]):
        return
    start, end = int(match[1]), min(int(match[2] or file.size - 1) + 1, file.size)
    if start >= file.size or end <= start:
        call.fail(416, {"Content-Range": f"bytes */{file.size}"})
        return
    call.status, call.start, call.end = 206, start, end
    call.answer["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
