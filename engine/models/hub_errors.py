"""What went wrong between here and the hub, as known errors in words that say what to do."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from engine.errors import EngineError, HubAccessDenied, HubNotFound, HubUnreachable, InvalidRequest
from engine.models.http import Fault, redacted, retry_after
from engine.models.not_gguf import shown


def known_error(error: Exception, what: str, endpoint: str) -> EngineError | None:
    """The known error for what huggingface_hub raised; None if that is a bug."""
    from huggingface_hub import errors

    response = getattr(error, "response", None)
    status = getattr(response, "status_code", 0)
    what = shown(what, 120)
    details = {"status": status, "repo": what}
    if isinstance(error, errors.GatedRepoError):
        return denied(what, gated=True, details=details)
    if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError | errors.EntryNotFoundError):
        return HubNotFound(
            f"The hub has no {what}, or hides it from this account",
            hint="Check the name. A private repository needs an access token with the right to read it.",
            details=details,
        )
    if isinstance(error, errors.HFValidationError):
        return InvalidRequest(f"{what} is no name of a repository", details={"field": "repo"})
    if status in (401, 403):
        return denied(what, gated=False, details=details, refused_token=status == 401)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubUnreachable("Offline mode is on, so the hub is not asked", details={"offline": True})
    if status:
        wait = retry_after(response.headers.get("retry-after")) if response is not None else None
        words = "asks to slow down" if status == 429 else f"answers with status {status}"
        hint = "Try again in a while." if status in (408, 429) or status >= 500 else ""
        return HubUnreachable(f"The hub {words}", hint=hint, details={**details, "retry_after_s": wait})
    if type(error).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2") or isinstance(
        error, OSError
    ):
        return HubUnreachable(
            f"{urlsplit(endpoint).hostname} cannot be reached",
            hint="Check the network connection and the proxy.",
            details={"reason": redacted(f"{type(error).__name__}: {error}")[:300]},
        )
    if isinstance(error, ValueError | KeyError | TypeError | AttributeError):
        return HubUnreachable(
            f"{urlsplit(endpoint).hostname} gives an answer that is not a hub's",
            hint="A network that asks for a login in the browser answers like this.",
            details={"reason": type(error).__name__},
        )
    return None


def denied(
    what: str, *, gated: bool, details: dict[str, Any] | None = None, refused_token: bool = False
) -> HubAccessDenied:
    """The error for a repository that this account may not read, in words that say what to do."""
    if gated:
        message, hint = (
            f"{what} is open only to those who accepted its terms",
            "Accept the terms on the page of the repository, then give Inglenook an access token of that account.",
        )
    elif refused_token:
        message, hint = "The hub does not accept the access token", "Make a new token on the hub and enter it here."
    else:
        message, hint = f"The hub does not give {what} to this account", "Enter an access token that may read it."
    return HubAccessDenied(message, hint=hint, details={**(details or {}), "gated": gated})


def fault_error(fault: Fault, repo: str) -> EngineError:
    """The known error for a request of ours that failed for good."""
    details = {"status": fault.status, "reason": fault.text, "repo": repo, "retry_after_s": fault.retry_after_s}
    if fault.kind in ("gated", "denied"):
        refused = fault.status == 401 and "token" in fault.text
        return denied(repo, gated=fault.kind == "gated", details=details, refused_token=refused)
    if fault.kind == "missing":
        return HubNotFound(f"{fault.text[:1].upper()}{fault.text[1:]}", details=details)
    hint = "Check the network connection and the proxy."
    if fault.kind in ("rate", "server"):
        hint = "Try again in a while."
    elif fault.kind == "certificate":
        hint = "Something between this computer and the hub opens its encryption, or the clock is wrong."
    return HubUnreachable(f"{fault.text[:1].upper()}{fault.text[1:]}", hint=hint, details=details)
