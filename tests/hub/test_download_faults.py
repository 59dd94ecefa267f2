"""Every way in which a server or a line can lie, stall or break, against what must be true in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_help import QUICK, leftovers, listed, put, start, wait_for
from hub_server import Call, Hub

from engine import log
from engine.models.download import Downloads, Policy

Make = Callable[..., Downloads]
FINAL = "ann/tiny/Tiny-Q4_K_M.gguf"


def when(test: Callable[[Call], bool], act: Callable[[Call], None]) -> Callable[[Call], None]:
    return lambda call: act(call) if test(call) else None


def storage_file(call: Call) -> bool:
    return call.host == "storage" and call.is_file


def first(n: int = 1) -> Callable[[Call], bool]:
    return lambda call: storage_file(call) and call.number <= n


def change(**values: Any) -> Callable[[Call], None]:
    def act(call: Call) -> None:
        for key, value in values.items():
            setattr(call, key, value)

    return act


def answer(name: str, value: str) -> Callable[[Call], None]:
    return lambda call: call.answer.__setitem__(name, value)


def cut_within(call: Call) -> None:
    if call.end - call.start > 70_000:
        call.cut_at = 70_000


def ignore_ranges_after_a_cut(call: Call) -> None:
    if call.number == 1:
        call.cut_at = (call.end - call.start) // 2
    else:
        call.whole()


#: faults that a download gets over by itself
SURVIVED: dict[str, Callable[[Call], None]] = {
    "cut at the first byte": when(first(), change(cut_at=0)),
    "cut after one byte": when(first(3), change(cut_at=1)),
    "cut one byte before the end": when(first(), lambda c: setattr(c, "cut_at", c.end - c.start - 1)),
    "reset in the body, five times": when(first(5), change(cut_at=30_000, reset=True)),
    "cut every 70 kB": when(storage_file, cut_within),
    "ranges ignored": when(storage_file, Call.whole),
    "cut, then ranges ignored": when(storage_file, ignore_ranges_after_a_cut),
    "stall": when(first(), change(stall_at=50_000, stall_s=3.0)),
    "slow drip": when(first(), change(drip_s=0.05)),
    "range answer without its header": when(first(), lambda c: c.answer.pop("Content-Range")),
    "range answer for another place": when(first(), answer("Content-Range", "bytes 5-99/500000")),
    "range answer with another size": when(first(), answer("Content-Range", "bytes 0-99/100")),
    "every range is a lie": when(storage_file, answer("Content-Range", "bytes 1-2/3")),
    "416 once": when(first(), lambda c: c.fail(416, {"Content-Range": "bytes */500000"})),
    "416 for every range": when(
        lambda c: storage_file(c) and "range" in c.headers, lambda c: c.fail(416, {"Content-Range": "bytes */1"})
    ),
    "429": when(first(2), lambda c: c.fail(429, {"Retry-After": "0"})),
    "429 with an hour": when(first(), lambda c: c.fail(429, {"Retry-After": "3600"})),
    "500": when(first(2), lambda c: c.fail(500)),
    "503 at the hub": when(lambda c: c.host == "hub" and c.number <= 2, lambda c: c.fail(503)),
    "expired link": when(first(), lambda c: c.fail(403)),
    "no length": when(storage_file, change(no_length=True)),
    "no length and cut": when(storage_file, lambda c: (change(no_length=True)(c), c.number == 1 and cut_within(c))),
    "gzip": when(storage_file, lambda c: (c.whole(), c.packed())),
    "gzip of ranges": when(lambda c: storage_file(c) and "range" in c.headers, Call.packed),
    "changed ETag in the middle": when(
        storage_file, lambda c: cut_within(c) if c.number == 1 else answer("ETag", '"other"')(c)
    ),
    "weak ETag": when(storage_file, answer("ETag", 'W/"weak"')),
    "hostile ETag": when(storage_file, answer("ETag", '"../../x"')),
}


@pytest.mark.parametrize("size", [500_000, 2_500_000], ids=["one connection", "four connections"])
@pytest.mark.parametrize("name", SURVIVED)
def test_survived(name: str, size: int, hub: Hub, models: Path, downloads: Make) -> None:
    data = put(hub, size)
    hub.faults.append(SURVIVED[name])
    seen: list[tuple[int, int]] = []
    queue = downloads(on_event=lambda e: seen.append((e.download.bytes_done, e.download.bytes_total)))
    info = wait_for(queue, start(queue, hub).id, "done", "failed", "paused")
    assert info.status == "done", info.error
    assert (models / FINAL).read_bytes() == data
    assert leftovers(models) == []
    assert all(0 <= done <= total == size for done, total in seen)


#: faults that end a download: the code of its error, and whether the parts stay
FATAL: dict[str, tuple[Callable[[Call], None], str]] = {
    "one flipped byte": (when(storage_file, change(flip_at=250_000)), "checksum_mismatch"),
    "flipped last byte": (when(storage_file, change(flip_at=499_999)), "checksum_mismatch"),
    "401 at the hub": (when(lambda c: c.host == "hub", lambda c: c.fail(401)), "hub_access_denied"),
    "403 at the hub": (when(lambda c: c.host == "hub", lambda c: c.fail(403)), "hub_access_denied"),
    "404 at the hub": (when(lambda c: c.host == "hub", lambda c: c.fail(404)), "hub_not_found"),
    "500 for ever": (when(storage_file, lambda c: c.fail(500)), "hub_unreachable"),
    "links that never work": (when(storage_file, lambda c: c.fail(403)), "hub_unreachable"),
    "400": (when(storage_file, lambda c: c.fail(400)), "download_failed"),
    "nothing but lies": (
        when(storage_file, lambda c: (change(status=206)(c), answer("Content-Range", "bytes 1-2/3")(c))),
        "download_failed",
    ),
    "redirect loop": (when(lambda c: c.host == "hub", lambda c: answer("Location", c.path)(c)), "download_failed"),
    "redirect to a file": (
        when(lambda c: c.host == "hub", answer("Location", "file:///etc/passwd")),
        "download_failed",
    ),
    "redirect with a password": (
        when(lambda c: c.host == "hub", answer("Location", "http://a:b@localhost:1/x")),
        "download_failed",
    ),
    "another commit": (when(lambda c: c.host == "hub", answer("X-Repo-Commit", "f" * 40)), "download_failed"),
    "another size": (when(lambda c: c.host == "hub", answer("X-Linked-Size", "7")), "download_failed"),
    "another hash": (when(lambda c: c.host == "hub", answer("X-Linked-Etag", f'"{"e" * 64}"')), "download_failed"),
    "nobody there": (when(lambda c: c.host == "hub", answer("Location", "http://localhost:9/x")), "hub_unreachable"),
}


@pytest.mark.parametrize("name", FATAL)
def test_fatal(name: str, hub: Hub, models: Path, downloads: Make) -> None:
    fault, code = FATAL[name]
    data = put(hub)
    hub.faults.append(fault)
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "done", "failed", "paused")
    assert info.status == "failed" and info.error is not None
    assert info.error.code == code, info.error
    assert info.error.message and listed(models) == []
    # and when the world is well again, a retry is all it takes
    hub.faults.clear()
    queue.retry(info.id)
    wait_for(queue, info.id, "done")
    assert (models / FINAL).read_bytes() == data
    assert leftovers(models) == []


def test_a_damaged_file_is_kept_aside_until_the_retry(hub: Hub, models: Path, downloads: Make) -> None:
    put(hub)
    hub.faults.append(when(storage_file, change(flip_at=1000)))
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "failed")
    assert info.error is not None and info.error.details["expected"] != info.error.details["found"]
    assert [p for p in leftovers(models) if p.endswith(".damaged")] and listed(models) == []
    assert "retry" in info.error.hint.lower()


def test_a_long_retry_after_is_capped_and_shown(hub: Hub, downloads: Make) -> None:
    put(hub)
    hub.faults.append(when(first(), lambda c: c.fail(429, {"Retry-After": "3600"})))
    seen: list[Any] = []
    queue = downloads(on_event=lambda e: seen.append(e.download))
    wait_for(queue, start(queue, hub).id, "done")
    waiting = [info for info in seen if info.status == "stalled" and info.error]
    assert waiting and waiting[0].error.details["retry_after_s"] == 3600
    assert "3600" in waiting[0].error.message and waiting[0].speed_bps is None and waiting[0].eta_s is None


def test_a_short_retry_after_is_honoured(hub: Hub, downloads: Make) -> None:
    put(hub)
    times: list[float] = []
    hub.faults.append(when(storage_file, lambda c: times.append(time.monotonic())))
    hub.faults.append(when(first(), lambda c: c.fail(503, {"Retry-After": "1"})))
    queue = downloads(policy=Policy(**{**_values(QUICK), "retry_after_cap_s": 5.0}))
    wait_for(queue, start(queue, hub).id, "done")
    assert times[1] - times[0] >= 1.0


def _values(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__dataclass_fields__}


def test_a_stall_is_shown_without_a_speed(hub: Hub, downloads: Make) -> None:
    put(hub)
    hub.faults.append(when(first(), change(stall_at=200_000, stall_s=2.5)))
    queue = downloads(policy=Policy(**{**_values(QUICK), "stall_s": 2.0}))
    download_id, deadline = start(queue, hub).id, time.monotonic() + 10
    while (info := wait_for(queue, download_id, "stalled")).bytes_done == 0 and time.monotonic() < deadline:
        time.sleep(0.01)  # a busy machine may take a while to the first byte
    assert info.speed_bps is None and info.eta_s is None and 0 < info.bytes_done < info.bytes_total
    wait_for(queue, info.id, "done")


def test_an_expired_link_is_renewed_in_the_same_run(hub: Hub, models: Path, downloads: Make) -> None:
    data = put(hub, 2_500_000)
    hub.faults.append(when(lambda c: storage_file(c) and c.number == 4, lambda c: hub.expire_links()))
    queue = downloads()
    wait_for(queue, start(queue, hub).id, "done")
    assert (models / FINAL).read_bytes() == data
    # the bytes that were there are not asked for again
    asked = [h["range"] for h in hub.file_calls("storage")]
    assert len(hub.file_calls("hub")) >= 2 and all(value != "bytes=0-2499999" for value in asked)


# ---------------------------------------------------------------------- tokens


@pytest.mark.parametrize("size", [500_000, 2_500_000])
def test_the_token_stays_at_the_hub(size: int, hub: Hub, downloads: Make) -> None:
    put(hub, size, gated="manual")
    hub.faults.append(when(first(2), change(cut_at=40_000)))
    queue = downloads(token="hf_good_token_123")
    wait_for(queue, start(queue, hub).id, "done")
    assert all(h["authorization"] == "Bearer hf_good_token_123" for h in hub.file_calls("hub"))
    asked = hub.file_calls("storage")
    assert len(asked) > 2 and not any("authorization" in h or "cookie" in h for h in asked)
    assert not any("cookie" in headers for _, _, headers in hub.calls)
    assert "hf_good" not in "\n".join(log.ring.lines())


def test_a_way_back_to_the_hub_gets_no_token(hub: Hub, downloads: Make) -> None:
    put(hub)
    back = f"{hub.endpoint}/stolen"
    hub.faults.append(when(lambda c: c.host == "storage", lambda c: c.fail(302, {"Location": back})))
    queue = downloads(token="hf_good_token_123")
    wait_for(queue, start(queue, hub).id, "failed")
    stolen = [headers for _, path, headers in hub.calls if path == "/stolen"]
    assert stolen and not any("authorization" in headers for headers in stolen)


def test_gated_in_words(hub: Hub, downloads: Make) -> None:
    put(hub, gated="manual")
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "failed")
    assert info.error is not None and info.error.code == "hub_access_denied" and info.error.details["gated"]
    assert "terms" in info.error.message and "token" in info.error.hint


def test_a_refused_token_in_words(hub: Hub, downloads: Make) -> None:
    put(hub)
    queue = downloads(token="hf_wrong_token_1")
    info = wait_for(queue, start(queue, hub).id, "failed")
    assert info.error is not None and "token" in info.error.message
    assert "hf_wrong" not in repr(info) and "hf_wrong" not in "\n".join(log.ring.lines())


def test_five_redirects_are_followed_and_six_are_not(hub: Hub, models: Path, downloads: Make) -> None:
    data = put(hub)

    def chain(length: int) -> Callable[[Call], None]:
        def act(call: Call) -> None:
            if call.host != "hub":
                return
            hop = int(call.path.partition("hop=")[2] or 0)
            if "/resolve/" in call.path and hop < length - 1:
                call.fail(302, {"Location": f"{call.path.partition('?')[0]}?hop={hop + 1}"})

        return act

    hub.faults.append(chain(6))
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "failed")
    assert info.error is not None and "redirect" in info.error.message
    hub.faults[:] = [chain(5)]
    queue.retry(info.id)
    wait_for(queue, info.id, "done")
    assert (models / FINAL).read_bytes() == data


def test_from_https_to_http_is_refused() -> None:
    import httpx

    from engine.models.http import Access, Fault, open_url

    asked: list[str] = []

    def world(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"location": "http://storage.example/x"})

    with httpx.Client(transport=httpx.MockTransport(world)) as client, pytest.raises(Fault, match="without encryption"):
        open_url(client, "https://hub.example/a", Access("https://hub.example", lambda: "hf_secret"), {})
    assert asked == ["https://hub.example/a"]


@pytest.mark.parametrize(
    ("endpoint", "url", "sent"),
    [
        ("https://hub.example", "https://hub.example/a", True),
        ("https://hub.example", "https://hub.example:444/a", False),
        ("https://hub.example", "https://cdn.hub.example/a", False),
        ("https://hub.example", "http://hub.example/a", False),
        ("http://hub.example", "http://hub.example/a", False),
        ("http://127.0.0.1:5", "http://127.0.0.1:5/a", True),
        ("http://127.0.0.1:5", "http://localhost:5/a", False),
        ("https://hub.example", "https://hub.example@evil.example/a", False),
    ],
)
def test_who_sees_the_token(endpoint: str, url: str, sent: bool) -> None:
    import httpx

    from engine.models.http import Access

    assert bool(Access(endpoint, lambda: "hf_secret").header_for(httpx.URL(url))) is sent
    assert "hf_secret" not in repr(Access(endpoint, lambda: "hf_secret"))


def test_logs_hide_tokens_and_signed_links(caplog: pytest.LogCaptureFixture) -> None:
    log.get("download").warning("asked %s with %s", "https://s/x?a=1&Signature=abcdef&b=2", "Bearer hf_abcdefgh")
    line = log.ring.lines()[-1]
    assert "abcdef" not in line and "hf_" not in line and "https://s/x" in line


def test_threads_end_with_the_work(hub: Hub, downloads: Make) -> None:
    put(hub, 2_500_000)
    queue = downloads()
    wait_for(queue, start(queue, hub).id, "done")
    queue.close()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(t.name.startswith("download") for t in threading.enumerate()):
        time.sleep(0.02)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("download")]
