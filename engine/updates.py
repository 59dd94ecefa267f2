"""Is there a newer Inglenook? Asked only when the user wants it; the answer is shown, and nothing is ever fetched to
be run.

The feed is a small JSON file, at the address in the settings (`update_feed`) or else the one this build was made with:

    {"version": "0.2.0", "page": "https://example.org/releases/0.2.0", "released": "2026-12-01"}

What answers is not trusted: its size and the time it takes are limited, the version has to be one, and the page has to
be an https address at the very host that the feed's address names. The question itself says nothing about the user: no
version, no number, no cookie.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

import engine
import resources
from engine import log
from engine.errors import EngineError, UpdateCheckFailed
from engine.settings import Settings

if TYPE_CHECKING:  # what asks is loaded with the first question: the window's start does without
    from engine.models import http

DAY_S = 86_400.0
MAX_BYTES = 64 * 1024
#: the whole answer has to be there after this time
PATIENCE_S = 20.0
_STALL_S = 10.0
_LOOPBACK = ("127.0.0.1", "localhost")
_VERSION = re.compile(r"(\d{1,4}(?:\.\d{1,4}){1,3})(?:(a|b|rc)(\d{1,3}))?", re.ASCII)
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)
_PATH = r"(?:/[A-Za-z0-9._~%!$&'()*+,;=:@/?#-]*)?"
_FEED = re.compile(rf"(https?)://([a-z0-9](?:[a-z0-9.-]{{0,250}}[a-z0-9])?)(:\d{{1,5}})?{_PATH}", re.ASCII)
_log = log.get("updates")
VersionKey = tuple[tuple[int, ...], int, int]


class Answer(msgspec.Struct, frozen=True):
    """The feed. Other keys are left for later versions."""

    version: str
    page: str
    released: str = ""


class Update(msgspec.Struct, frozen=True):
    """What is known of the newest version.

    Attributes:
        current: this program's version. latest: the newest one. page: where it is; https, at `host`.
        released: day as 2026-12-01, or "".
    """

    current: str
    latest: str
    page: str
    host: str
    released: str = ""

    @property
    def is_newer(self) -> bool:
        return version_key(self.latest) > version_key(self.current)


def version_key(version: str) -> VersionKey:
    """By this versions can be compared: 0.9 < 0.10a1 < 0.10rc2 < 0.10 = 0.10.0.

    Raises:
        ValueError: that is no version.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"{version[:40]!r} is no version")
    numbers = [int(number) for number in found[1].split(".")]
    stage = ("a", "b", "rc", None).index(found[2])
    return tuple(numbers + [0] * (4 - len(numbers))), stage, int(found[3] or 0)


def built_in_feed() -> str:
    """The address that this build was made with, "" if it has none."""
    lines = (line.strip() for line in resources.text("updates/feed.txt").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def host_of(feed: str) -> str:
    """The host that an address of a feed names.

    Raises:
        UpdateCheckFailed: it is no address that may be asked.
    """
    found = _FEED.fullmatch(feed)
    if found is None or len(feed) > 500 or (found[1] == "http" and found[2] not in _LOOPBACK):
        raise UpdateCheckFailed(
            "The address that tells of new versions cannot be used",
            hint="It begins with https:// and holds no password. It is the setting update_feed.",
            details={"address": feed[:200]},
        )
    return found[2]


def read_answer(raw: bytes, feed: str, current: str) -> Update:
    """What the feed says, looked at as if an enemy had written it.

    Raises:
        UpdateCheckFailed: it is not what a feed may say.
    """
    host = host_of(feed)
    try:
        if len(raw) > MAX_BYTES:
            raise ValueError("it is too long")
        answer = msgspec.json.decode(raw, type=Answer)
        version_key(answer.version)
        if answer.released and _DATE.fullmatch(answer.released) is None:
            raise ValueError("its date is none")
        port = re.escape(_FEED.fullmatch(feed)[3] or "")  # type: ignore[index]
        if len(answer.page) > 500 or re.fullmatch(rf"https://{re.escape(host)}(?:{port})?{_PATH}", answer.page) is None:
            raise ValueError(f"its page is not at https://{host}")
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UpdateCheckFailed(
            f"What {host} says about new versions cannot be used",
            hint="Nothing was changed. Try again another day.",
            details={"reason": str(error)[:200]},
        ) from error
    return Update(current, answer.version, answer.page, host, answer.released)


class Updates:
    """Asks for new versions. Safe from any thread; nothing connects before `check` or `check_if_due`."""

    def __init__(
        self, settings: Settings, *, current: str = engine.__version__, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._current, self._clock = settings, current, clock
        self._lock = threading.Lock()
        self._running: Future[Update] | None = None

    @property
    def feed(self) -> str:
        """The address that would be asked; "" if there is none."""
        return self._settings.update_feed.strip() or built_in_feed()

    @property
    def host(self) -> str:
        """Whom a check would ask; "" if nobody can be asked."""
        try:
            return host_of(self.feed)
        except UpdateCheckFailed:
            return ""

    @property
    def asked_s(self) -> float:
        """When it was asked last, in seconds since 1970; 0 if never."""
        return self._settings.update_asked_s

    @property
    def known(self) -> Update | None:
        """What the last answer said, also in an earlier run; None if nothing is known."""
        seen = self._settings.update_seen
        try:
            raw = msgspec.json.encode(dict(zip(("version", "page", "released"), seen, strict=True)))
            return read_answer(raw, self.feed, self._current)
        except (EngineError, ValueError):  # nothing yet, or written by hand
            return None

    @property
    def is_due(self) -> bool:
        """Whether it may be asked without a wish of this moment: allowed, and not within the last day.

        Where the settings cannot be written the day could not be kept, so it never is.
        """
        settings = self._settings
        allowed = settings.update_daily and not settings.read_only and bool(self.host) and not _offline()
        return allowed and abs(self._clock() - settings.update_asked_s) >= DAY_S

    def check_if_due(self) -> Future[Update] | None:
        """As `check`, where `is_due` says so; else None, and nothing is done."""
        return self._begin(must_note=True) if self.is_due else None

    def check(self) -> Future[Update]:
        """Ask now, because the user wishes it.

        The future raises `UpdateCheckFailed`.
        """
        return self._begin(must_note=False)

    def _begin(self, *, must_note: bool) -> Future[Update]:
        with self._lock:
            if self._running is not None and not self._running.done():
                return self._running
            result: Future[Update] = Future()
            self._running = result
        # daemons: the end of the program does not wait for a server
        threading.Thread(target=self._run, args=(result, must_note), name="updates", daemon=True).start()
        too_long = threading.Timer(PATIENCE_S + 1, _end, (result, _failed("the server is too slow")))
        too_long.daemon = True
        too_long.start()
        result.add_done_callback(lambda _: too_long.cancel())
        return result

    def _run(self, result: Future[Update], must_note: bool) -> None:
        try:
            _end(result, self._ask(must_note))
        except Exception as error:
            if not isinstance(error, EngineError):
                _log.exception("asking for a new version failed")
            _end(result, error)

    def _ask(self, must_note: bool) -> Update:
        feed = self.feed
        if not feed:
            raise UpdateCheckFailed(
                "This copy was built without an address to ask for new versions",
                hint="Look where you got it, or set update_feed.",
            )
        host_of(feed)
        if _offline():
            raise UpdateCheckFailed(
                "Offline mode is on, so nobody is asked for new versions", hint="Unset HF_HUB_OFFLINE to ask."
            )
        # before the question: a server that fails must not be asked at every start
        self._note(must_note, update_asked_s=self._clock())
        found = read_answer(_fetch(feed), feed, self._current)
        self._note(False, update_seen=[found.latest, found.page, found.released])
        _log.info("the newest version is %s, this is %s", found.latest, found.current)
        return found

    def _note(self, must: bool, **values: object) -> None:
        try:
            for name, value in values.items():
                setattr(self._settings, name, value)
            self._settings.save()
        except EngineError as error:
            if must:
                raise
            _log.warning("the settings cannot be saved: %s", error.message)


def _offline() -> bool:
    """The user forbids the network, with the variable that the hub's programs know."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in ("1", "ON", "YES", "TRUE")


def _fetch(feed: str) -> bytes:
    from engine.models import http

    host, end = host_of(feed), time.monotonic() + PATIENCE_S
    try:
        with http.new_client(_STALL_S, connections=1) as client:
            opened = http.open_url(client, feed, http.Access(feed), {"Accept": "application/json"})
            try:
                return _body(opened, host, end)
            finally:
                opened.close()
    except http.Fault as fault:
        if fault.kind == "network":  # the system's own words for it are many, and none of them helps more
            _log.info("%s", fault.text)
            raise _failed(f"the connection to {host} failed") from fault
        raise _failed(fault.text) from fault


def _body(opened: http.Opened, host: str, end: float) -> bytes:
    import httpx

    from engine.models.http import network_fault

    response, body = opened.response, bytearray()
    if response.status_code != 200:
        raise _failed(f"{host} answers with status {response.status_code}")
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise _failed(f"{host} answers in a form that was not asked for")
    try:
        for piece in response.iter_raw(8192):
            body += piece
            if len(body) > MAX_BYTES:
                raise _failed(f"{host} says far more than the version")
            if time.monotonic() > end:
                raise _failed(f"{host} is too slow")
    except (httpx.TransportError, OSError) as error:
        raise network_fault(error, host) from error
    return bytes(body)


def _end(result: Future[Update], outcome: Update | Exception) -> None:
    """The first outcome counts: a server may let its headers drip for hours."""
    with suppress(InvalidStateError):
        if isinstance(outcome, Update):
            result.set_result(outcome)
        else:
            result.set_exception(outcome)


def _failed(reason: str) -> UpdateCheckFailed:
    return UpdateCheckFailed(
        "Whether there is a new version could not be found out",
        hint="Look at the network connection, or try again later.",
        details={"reason": reason},
    )
