"""Requests to the hub and to the storage behind it.

Redirects are followed here, one by one, because three rules depend on each step: the access token goes to the hub's
own origin and nowhere else, a secure connection is never given up, and there are at most `MAX_REDIRECTS` of them.
Nothing of this module touches the network when it is imported; httpx is imported with the first request.
"""

from __future__ import annotations

import email.utils
import http.cookiejar
import logging
import math
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine import log

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
CONNECT_S = 15.0
_REDIRECTS = (301, 302, 303, 307, 308)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRETS = re.compile(r"hf_[A-Za-z0-9]{4,}|(?i:bearer)\s+\S+|(?<=[?&])[^\s\"']*(?:sig|token|signature)=[^\s\"']*", re.I)
Origin = tuple[str, str, int]


class Fault(Exception):
    """A request that did not bring what was asked for.

    Attributes:
        kind: "network", "certificate", "stalled", "cut", "rate", "server", "expired" (link to the storage), "denied",
            "gated", "missing", "range" (416), "lie" (an answer that does not fit the question), "whole" (all bytes
            instead of a range), "changed" (another file than before), "encoded", "redirect", "refused".
        retry: another try may help.
    """

    def __init__(
        self, kind: str, text: str, *, status: int = 0, retry: bool = True, retry_after_s: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind, self.text, self.status, self.retry, self.retry_after_s = kind, text, status, retry, retry_after_s


@dataclass(frozen=True)
class Access:
    """Who may see the token: the configured hub, over https (or over http where the hub is this very machine)."""

    endpoint: str
    token: Callable[[], str | None] = field(default=lambda: None, repr=False)

    def header_for(self, url: httpx.URL) -> dict[str, str]:
        import httpx

        hub = httpx.URL(self.endpoint)
        if origin(url) != origin(hub) or not (url.scheme == "https" or url.host in _LOOPBACK):
            return {}
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}


@dataclass
class Opened:
    """An answer whose body was not read yet.

    Attributes:
        url: where it came from in the end.
        at_hub: every step was at the hub's own origin.
        hub_headers: headers of the hub's first answer (file size, hash and commit are in these).
    """

    response: httpx.Response
    url: httpx.URL
    at_hub: bool
    hub_headers: Mapping[str, str]
    with_token: bool

    def close(self) -> None:
        try:
            self.response.close()
        except Exception as error:  # a connection that is broken already
            log.get("download").debug("closing a connection: %s", type(error).__name__)


def origin(url: httpx.URL) -> Origin:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def new_client(stall_s: float, connections: int = 8) -> httpx.Client:
    """A client without cookies, automatic redirects or stored passwords; proxies come from the environment."""
    import httpx

    no_cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    return httpx.Client(
        timeout=httpx.Timeout(stall_s, connect=min(CONNECT_S, stall_s), pool=None),
        limits=httpx.Limits(max_connections=connections * 2, max_keepalive_connections=connections),
        headers={"User-Agent": "inglenook", "Accept-Encoding": "identity"},
        cookies=no_cookies,
        follow_redirects=False,
        trust_env=True,
    )


def open_url(
    client: httpx.Client, url: str, access: Access, headers: Mapping[str, str], *, at_hub: bool = True
) -> Opened:
    """Sends a GET and follows redirects up to the answer itself, whatever its status.

    Args:
        at_hub: False for an address that a redirect led to before: it gets no token, also not on the hub's origin.

    Raises:
        Fault: no answer, or a redirect that may not be followed.
    """
    import httpx

    target = _parsed(url)
    hub = origin(httpx.URL(access.endpoint))
    hub_headers: Mapping[str, str] = {}
    for step in range(MAX_REDIRECTS + 1):
        at_hub = at_hub and origin(target) == hub
        secret = access.header_for(target) if at_hub else {}
        response = _send(client, target, {**headers, **secret})
        if step == 0:
            hub_headers = response.headers
        if response.status_code not in _REDIRECTS:
            return Opened(response, target, at_hub, hub_headers, bool(secret))
        location = response.headers.get("location", "")
        response.close()
        following = _joined(target, location)
        if target.scheme == "https" and following.scheme != "https":
            raise Fault("redirect", f"{shown_url(target)} leads to an address without encryption", retry=False)
        target = following
    raise Fault("redirect", f"more than {MAX_REDIRECTS} redirects in a row", retry=False)


def _send(client: httpx.Client, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Response:
    import httpx

    try:
        return client.send(client.build_request("GET", url, headers=dict(headers)), stream=True)
    except httpx.TimeoutException as error:
        raise Fault("stalled", f"the server {url.host} does not answer") from error
    except (httpx.TransportError, OSError) as error:
        raise network_fault(error, url.host) from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise Fault("refused", f"{shown_url(url)} cannot be asked: {type(error).__name__}", retry=False) from error


def network_fault(error: BaseException, host: str) -> Fault:
    """The fault for a failed connection; a certificate that is not trusted does not get better by trying again."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Fault("certificate", f"the certificate of {host} is not trusted", retry=False)
        cause = cause.__cause__ or cause.__context__
    return Fault("network", f"the connection to {host} failed ({redacted(str(error)) or type(error).__name__})")


def _parsed(url: str) -> httpx.URL:
    import httpx

    try:
        target = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise Fault("redirect", "the server gave an address that is none", retry=False) from error
    return _checked(target)


def _joined(base: httpx.URL, location: str) -> httpx.URL:
    import httpx

    if not location:
        raise Fault("redirect", f"{shown_url(base)} redirects to nowhere", retry=False)
    try:
        return _checked(base.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise Fault("redirect", f"{shown_url(base)} redirects to an address that is none", retry=False) from error


def _checked(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise Fault("redirect", f"an address of the kind {url.scheme or 'unknown'} is not followed", retry=False)
    if url.userinfo:
        raise Fault("redirect", "an address with a password in it is not followed", retry=False)
    return url


def check_status(opened: Opened, name: str) -> None:
    """Raises the fault for every status but 200 and 206; closes the answer then."""
    response = opened.response
    status = response.status_code
    if status in (200, 206):
        return
    opened.close()
    host = opened.url.host
    if status in (401, 403, 404, 410) and not opened.at_hub:
        raise Fault("expired", f"the link to the storage of {name} is no longer valid ({status})", status=status)
    if status in (401, 403):
        gated = response.headers.get("x-error-code") == "GatedRepo"
        if status == 401 and opened.with_token and not gated:
            raise Fault("denied", "the hub does not accept the access token", status=status, retry=False)
        kind = "gated" if gated else "denied"
        raise Fault(kind, f"the hub does not give {name} to this account", status=status, retry=False)
    if status in (404, 410):
        raise Fault("missing", f"the hub has no {name} (any more)", status=status, retry=False)
    if status == 416:
        raise Fault("range", f"the server {host} has no such part of {name}", status=status)
    if status in (408, 425, 429) or status >= 500:
        wait = retry_after(response.headers.get("retry-after"))
        words = "asks to slow down" if status == 429 else f"has a problem (status {status})"
        kind = "rate" if status == 429 else "server"
        raise Fault(kind, f"the server {host} {words}", status=status, retry_after_s=wait)
    raise Fault("refused", f"the server {host} answers with status {status}", status=status, retry=False)


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for (a number or a date); None if it says nothing usable."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def shown_url(url: Any) -> str:
    """An address without its query: signed links carry their password there."""
    return f"{url.scheme}://{url.host}{url.path}"[:200]


def redacted(text: str) -> str:
    return _SECRETS.sub("[hidden]", text)


class Redact(logging.Filter):
    """Takes tokens and signed links out of what is logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:
            return True
        hidden = redacted(text)
        if hidden != text:
            record.msg, record.args = hidden, ()
        return True


for _name in ("download", "hub"):
    log.get(_name).addFilter(Redact())
