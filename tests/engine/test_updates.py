"""New versions: asked only by wish or permission, the answer distrusted, nothing but words done with it."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import cli, updates
from engine.errors import UpdateCheckFailed
from engine.settings import SCHEMA, Settings
from engine.updates import DAY_S, Updates, host_of, read_answer, version_key

FEED = "https://example.org/inglenook/latest.json"
PAGE = "https://example.org/inglenook/0.2.0"
GOOD = {"version": "0.2.0", "page": PAGE, "released": "2026-12-01"}


class Feed(http.server.ThreadingHTTPServer):
    """A feed on this machine; `answer` is what it says, `asked` what was asked of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.headers, self.asked = 200, {"Content-Type": "application/json"}, []
        self.answer: bytes = json.dumps({**GOOD, "page": "https://127.0.0.1/0.2.0"}).encode()
        self.pause_s = 0.0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/latest.json"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Feed

    def do_GET(self) -> None:
        feed = self.server
        feed.asked.append((self.path, dict(self.headers)))
        self.send_response(feed.status)
        for name, value in feed.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(feed.answer), 4096):
            try:
                self.wfile.write(feed.answer[start : start + 4096])
                time.sleep(feed.pause_s)
            except OSError:  # we hung up: as it should be
                return

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def feed() -> Iterator[Feed]:
    server = Feed()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "settings.json")


# ------------------------------------------------------------------ versions


def test_versions_are_ordered() -> None:
    ordered = ["0.1", "0.1.1", "0.9", "0.10a1", "0.10b1", "0.10rc1", "0.10rc2", "0.10", "1.0.0.1", "2.0"]
    keys = [version_key(version) for version in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert version_key("1.2") == version_key("1.2.0.0")
    assert version_key(engine.__version__) >= version_key("0.1")


@pytest.mark.parametrize(
    "text", ["", "1", "v1.2", "1.2.3.4.5", "1.2-3", "1.2 ", "1.2\n", "1.99999", "١.٢", "1.2+x", "1.2.dev1", "-1.2"]
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="no version"):
        version_key(text)


# ------------------------------------------------------------------ the answer of a stranger


def test_a_good_answer() -> None:
    found = read_answer(json.dumps({**GOOD, "later": [1, 2]}).encode(), FEED, "0.1.0")
    assert (found.latest, found.page, found.host, found.released) == ("0.2.0", PAGE, "example.org", "2026-12-01")
    assert found.is_newer
    assert not read_answer(json.dumps(GOOD).encode(), FEED, "0.2.0").is_newer
    assert not read_answer(json.dumps(GOOD).encode(), FEED, "0.3.0").is_newer
    assert read_answer(b'{"version": "0.2.0rc1", "page": "https://example.org"}', FEED, "0.1.9").is_newer


@pytest.mark.parametrize(
    "page",
    [
        "http://example.org/x",
        "https://example.com/x",
        "https://example.org.evil.com/x",
        "https://evil.com/https://example.org/",
        "https://example.org@evil.com/",
        "https://evil.com\\@example.org/",
        "https://example.org\\.evil.com/",
        "https://example.org:8443/x",
        "https://EXAMPLE.org/x",
        "https://example.org/a b",
        "https://example.org/a\nb",
        "https://example.org/\u202egpj.exe",
        "https://exаmple.org/x",
        "//example.org/x",
        "javascript:alert(1)//https://example.org/",
        "file:///etc/passwd",
        "inglenook://hub/x",
        "https://example.org/" + "a" * 600,
        "",
        5,
        None,
    ],
)
def test_a_page_elsewhere_is_refused(page: Any) -> None:
    with pytest.raises(UpdateCheckFailed, match=r"example\.org says .* cannot be used"):
        read_answer(json.dumps({**GOOD, "page": page}).encode(), FEED, "0.1.0")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"<html>Please log in</html>",
        b'{"version": "0.2.0"}',
        b'{"version": 2, "page": "https://example.org/"}',
        b'{"version": "latest", "page": "https://example.org/"}',
        b'{"version": "0.2.0", "page": "https://example.org/", "released": "tomorrow"}',
        b'{"version": "0.2.0", "page": "https://example.org/", "released": "2026-13-01"}',
        b'\xff\xfe{"version": "0.2.0"}',
        b'{"a":' * 20_000,
        b"[" * 60_000,
        b" " * (updates.MAX_BYTES + 1),
    ],
)
def test_any_other_answer_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(UpdateCheckFailed) as caught:
        read_answer(raw, FEED, "0.1.0")
    assert caught.value.hint
    assert len(str(caught.value.details)) < 400


@pytest.mark.parametrize(
    "address",
    [
        "",
        "example.org",
        "http://example.org/x",
        "ftp://example.org/x",
        "https://user:secret@example.org/x",
        "https://example.org\\x",
        "https:///x",
        "https://example.org/a b",
        "file:///x",
        "http://127.0.0.1.evil.com/",
        "https://" + "a" * 600,
    ],
)
def test_an_address_that_is_not_asked(address: str) -> None:
    with pytest.raises(UpdateCheckFailed, match="address"):
        host_of(address)


# ------------------------------------------------------------------ asking


def test_asking_says_nothing_of_the_user(feed: Feed, settings: Settings) -> None:
    settings.update_feed = feed.url
    asking = Updates(settings, current="0.1.0", clock=lambda: 5 * DAY_S)
    assert asking.known is None
    found = asking.check().result(20)
    assert found.is_newer
    assert found.page == "https://127.0.0.1/0.2.0"
    ((path, headers),) = feed.asked
    assert path == "/latest.json"
    assert {name.lower() for name in headers} <= {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert headers["User-Agent"] == "inglenook"
    # kept for the next start
    again = Updates(Settings(settings.path), current="0.1.0")
    assert again.known == found
    assert again.asked_s == 5 * DAY_S
    # the version that is newer now is this one after an update
    updated = Updates(Settings(settings.path), current="0.2.0").known
    assert updated is not None and not updated.is_newer


def test_what_was_kept_is_distrusted_too(settings: Settings) -> None:
    settings.update_feed = FEED
    for seen in (["0.2.0"], ["0.2.0", "https://evil.com/", ""], ["9", PAGE, ""], ["a", "b", "c", "d"]):
        settings.update_seen = seen
        assert Updates(settings).known is None
    settings.update_seen = ["0.2.0", PAGE, ""]
    assert Updates(settings).known is not None
    settings.update_feed = "https://other.example/latest.json"
    assert Updates(settings).known is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": 404}, "status 404"),
        ({"status": 500}, "status 500"),
        ({"answer": b"x" * (updates.MAX_BYTES + 5000)}, "far more than the version"),
        ({"headers": {"Content-Encoding": "gzip"}}, "not asked for"),
        ({"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "not followed"),
        ({"status": 302, "headers": {"Location": "/again"}}, "redirects in a row"),
    ],
)
def test_a_server_that_misbehaves(feed: Feed, settings: Settings, change: dict[str, Any], reason: str) -> None:
    settings.update_feed = feed.url
    vars(feed).update(change)
    with pytest.raises(UpdateCheckFailed) as caught:
        Updates(settings).check().result(20)
    assert reason in str(caught.value.details["reason"])
    assert settings.update_seen == []


def test_a_server_that_drips_is_given_up(feed: Feed, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.update_feed = feed.url
    feed.answer, feed.pause_s = b" " * 60_000, 0.2
    monkeypatch.setattr(updates, "PATIENCE_S", 0.3)
    with pytest.raises(UpdateCheckFailed) as caught:
        Updates(settings).check().result(20)
    assert "too slow" in str(caught.value.details["reason"])


def test_headers_that_drip_are_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "PATIENCE_S", -0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes the question and says nothing
        settings.update_feed = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(UpdateCheckFailed):
            Updates(settings).check().result(8)


def test_no_server_is_said_in_words(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings.update_feed = f"http://127.0.0.1:{port}/"
    with pytest.raises(UpdateCheckFailed) as caught:
        Updates(settings).check().result(20)
    assert "connection to 127.0.0.1 failed" in str(caught.value.details["reason"])
    assert "network" in caught.value.hint


# ------------------------------------------------------------------ by itself


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fails the test if anything would be asked; gives the list of tries."""
    asked: list[str] = []
    monkeypatch.setattr(updates, "_fetch", lambda feed: asked.append(feed) or json.dumps(GOOD).encode())
    return asked


def test_off_is_the_default_and_then_nothing_is_asked(settings: Settings, no_threads: list[str]) -> None:
    assert settings.update_daily is False
    settings.update_feed = FEED
    asking = Updates(settings)
    assert asking.check_if_due() is None
    assert no_threads == []


def test_at_most_once_a_day(settings: Settings, no_threads: list[str]) -> None:
    now = 1_000 * DAY_S
    settings.update_feed, settings.update_daily = FEED, True
    asking = Updates(settings, current="0.1.0", clock=lambda: now)
    first = asking.check_if_due()
    assert first is not None and first.result(10).latest == "0.2.0"
    assert asking.check_if_due() is None
    now += DAY_S - 1
    assert Updates(Settings(settings.path), clock=lambda: now).check_if_due() is None
    now += 1
    again = Updates(Settings(settings.path), clock=lambda: now).check_if_due()
    assert again is not None and again.result(10)
    now = 3.0  # the clock was set back: it is not asked at every start, and not never again
    late = Updates(Settings(settings.path), clock=lambda: now)
    assert late.is_due
    due = late.check_if_due()
    assert due is not None and due.result(10)
    assert not late.is_due
    assert len(no_threads) == 3


def test_a_failure_counts_as_asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(feed: str) -> bytes:
        raise UpdateCheckFailed("no")

    monkeypatch.setattr(updates, "_fetch", fail)
    settings.update_feed, settings.update_daily = FEED, True
    first = Updates(settings).check_if_due()
    assert first is not None
    with pytest.raises(UpdateCheckFailed):
        first.result(10)
    assert Updates(Settings(settings.path)).check_if_due() is None


def test_not_by_itself_where_the_day_cannot_be_kept(tmp_path: Path, no_threads: list[str]) -> None:
    path = tmp_path / "newer.json"
    path.write_text(json.dumps({"schema_version": SCHEMA + 1, "update_daily": True, "update_feed": FEED}))
    newer = Settings(path)
    assert newer.update_daily and newer.read_only
    assert Updates(newer).check_if_due() is None
    assert Updates(newer).check().result(10).latest == "0.2.0"  # by wish it works all the same


def test_offline_mode_and_no_address(
    settings: Settings, no_threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.update_daily = True
    monkeypatch.setattr(updates, "built_in_feed", lambda: "")
    assert Updates(settings).check_if_due() is None
    with pytest.raises(UpdateCheckFailed, match="without an address"):
        Updates(settings).check().result(10)
    settings.update_feed = FEED
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert Updates(settings).check_if_due() is None
    with pytest.raises(UpdateCheckFailed, match="Offline mode"):
        Updates(settings).check().result(10)
    assert no_threads == []


def test_the_built_in_address_is_one_or_none() -> None:
    built_in = updates.built_in_feed()
    assert built_in == "" or host_of(built_in)


def test_what_asks_is_not_loaded_before_a_question() -> None:
    """The window's start is short because of what it does not load."""
    code = "import sys, desktop.app; print([m for m in ('engine.models.http', 'httpx', 'ssl') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------ the command line


def test_version_alone_asks_nobody(no_threads: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"inglenook {engine.__version__}\n"
    assert no_threads == []


def test_version_check(
    home: Path, feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "built_in_feed", lambda: feed.url)
    feed.answer = b'{"version": "9999.0", "page": "https://127.0.0.1/new"}'
    assert cli.main(["--version", "--check"]) == 0
    assert "Inglenook 9999.0 is out: https://127.0.0.1/new" in capsys.readouterr().out
    feed.answer = b'{"version": "0.0.1", "page": "https://127.0.0.1/new"}'
    assert cli.main(["--version", "--check"]) == 0
    assert "newest version; 127.0.0.1 has 0.0.1" in capsys.readouterr().out
    feed.status = 503
    assert cli.main(["--version", "--check"]) == 22
    assert "could not be found out" in capsys.readouterr().err
