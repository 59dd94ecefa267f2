"""The access token for the hub: where it is kept, and where it is looked for.

A token that the user gives here goes to the system's key store, filed under the hub's host, so that another hub never
gets it. Without one, what the user set for Hugging Face's own tools counts: `HF_TOKEN`, then their token file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine import log
from engine.errors import InvalidRequest, StorageFailed

SERVICE = "inglenook"
_MAX_CHARS = 4096


def keyring_module() -> Any | None:
    """The keyring library with a usable store behind it, or None."""
    try:
        import keyring  # type: ignore[import-not-found, unused-ignore]
        from keyring.backends import fail  # type: ignore[import-not-found, unused-ignore]

        return None if isinstance(keyring.get_keyring(), fail.Keyring) else keyring
    except Exception as error:  # not installed, or its desktop service is broken
        log.get("hub").debug("no key store: %s", type(error).__name__)
        return None


def _account(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    port = f":{parts.port}" if parts.port else ""
    return f"hub {parts.hostname or endpoint}{port}"


def clean(token: str | None) -> str | None:
    """A token without white space around it; None for an empty or impossible one."""
    token = (token or "").strip()
    if not token or len(token) > _MAX_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        return None
    return token


def find(endpoint: str) -> str | None:
    """The token for a hub: key store, `HF_TOKEN`, token file of Hugging Face's tools; None without one."""
    store = keyring_module()
    if store is not None:
        try:
            token = clean(store.get_password(SERVICE, _account(endpoint)))
        except Exception as error:  # a locked store, a user who says no
            log.get("hub").warning("the key store does not give the token: %s", type(error).__name__)
            token = None
        if token:
            return token
    return clean(os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")) or _from_file()


def _from_file() -> str | None:
    named = os.environ.get("HF_TOKEN_PATH")
    home = os.environ.get("HF_HOME")
    try:
        path = Path(named) if named else (Path(home) if home else Path.home() / ".cache" / "huggingface") / "token"
        with path.open("rb") as file:
            return clean(file.read(_MAX_CHARS + 1).decode())
    except (OSError, ValueError, RuntimeError):
        return None


def save(endpoint: str, token: str) -> None:
    """Puts a token into the system's key store, for this hub only.

    Raises:
        InvalidRequest: it cannot be a token.
        StorageFailed: there is no key store, or it refuses.
    """
    cleaned = clean(token)
    if cleaned is None:
        raise InvalidRequest("This is no access token", details={"field": "token"})
    store = keyring_module()
    if store is None:
        raise StorageFailed(
            "This system has no key store to keep the token in",
            hint="Set the environment variable HF_TOKEN instead.",
        )
    try:
        store.set_password(SERVICE, _account(endpoint), cleaned)
    except Exception as error:
        raise StorageFailed(f"The key store did not take the token ({type(error).__name__})") from error


def forget(endpoint: str) -> None:
    """Removes the token from the system's key store, if one is there."""
    store = keyring_module()
    if store is None:
        return
    try:
        store.delete_password(SERVICE, _account(endpoint))
    except Exception as error:
        log.get("hub").debug("no token removed: %s", type(error).__name__)
