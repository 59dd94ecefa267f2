"""Links that name a model of the hub: `inglenook://models/OWNER/REPO[?file=PATH|?quant=LABEL]`.

A link comes from a web page, a mail or another program, so it may only name things, never do any: what it names is
shown, and the user decides. Everything that is not exactly this form is refused with words. A link never says which
hub is meant; that is a setting of the user's.

    link   = "inglenook://models/" owner "/" repo [ "?" ( "file=" path | "quant=" label ) ]
    owner, repo: letters, digits, ".", "_" and "-" as the hub allows them, never escaped
    path: of a .gguf file in the repository, in percent-encoding where need be
    label: of a quantization, as file names tell it ("Q4_K_M", "UD-Q4_K_XL")
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from engine.errors import InvalidRequest
from engine.models.hub_names import quant_label

SCHEME = "inglenook"
FORM = "inglenook://models/OWNER/REPO"
MAX_LENGTH = 512
"""Characters; the longest names that the hub allows need less."""

_HOST = "models"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?\Z")
_LINK = re.compile(
    r"inglenook://(?P<host>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?P<rest>#.*)?\Z", re.IGNORECASE
)
_ESCAPES = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class ModelLink:
    """What a link names.

    Attributes:
        repo: "owner/name" on the hub.
        file: a file of the repository; empty: none is named.
        quant: label of a quantization, also where a file tells it; empty: none is named.
    """

    repo: str
    file: str = ""
    quant: str = ""


def is_link(text: str) -> bool:
    """Whether an argument is meant as such a link, sound or not."""
    return text[: len(SCHEME) + 1].casefold() == f"{SCHEME}:"


def parse(text: str) -> ModelLink:
    """What the link names.

    Raises:
        InvalidRequest: it is not of the form; the message says what is wrong with it.
    """
    if len(text) > MAX_LENGTH:
        raise _refused(f"is longer than {MAX_LENGTH} characters", text)
    if not (text.isascii() and text.isprintable()) or " " in text or "\\" in text:
        raise _refused("holds characters that a link may not have", text)
    match = _LINK.match(text)
    if match is None:
        raise _refused(f"does not begin with {SCHEME}://", text)
    if match["host"].casefold() != _HOST:
        raise _refused("names something other than a model of the hub", text)
    if match["rest"]:
        raise _refused("says more than the name of a model", text)
    repo = _repo(match["path"], text)
    if match["query"] is None:
        return ModelLink(repo)
    key, equals, value = match["query"].partition("=")
    if not equals or key not in ("file", "quant") or "&" in value or ";" in value:
        raise _refused("says more than one file or one quantization of a model", text)
    value = _decoded(value, text)
    if key == "quant":
        if not value or quant_label(value) != value.upper():
            raise _refused("names a quantization that there is none of", text)
        return ModelLink(repo, quant=quant_label(value))
    return ModelLink(repo, _file(value, text), quant_label(value))


def _repo(path: str, text: str) -> str:
    parts = path.split("/")
    if len(parts) != 3 or parts[0]:
        raise _refused("does not name one repository of the hub", text)
    owner, name = parts[1:]
    sound = all(_NAME.match(part) and ".." not in part and "--" not in part for part in (owner, name))
    if not sound or len(owner) + len(name) > 95 or name.casefold().endswith(".git"):
        raise _refused("names a repository that the hub cannot have", text)
    return f"{owner}/{name}"


def _decoded(value: str, text: str) -> str:
    if _ESCAPES.search(value):
        raise _refused("is not encoded as links are", text)
    try:
        plain = unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise _refused("is not encoded as links are", text) from None
    if not plain.isprintable():
        raise _refused("holds characters that a link may not have", text)
    return plain


def _file(path: str, text: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or set(path) & set('\\:%<>"|?*') or len(path) > 255:
        raise _refused("names a file outside of its repository", text)
    if not path.casefold().endswith(".gguf"):
        raise _refused("names a file that is not a GGUF model", text)
    return path


def _refused(why: str, text: str) -> InvalidRequest:
    shown = ascii(text[:120])[1:-1] + ("…" if len(text) > 120 else "")
    return InvalidRequest(
        f"The link was not opened: it {why}.",
        hint=f"A link to a model looks like {FORM}.",
        details={"field": "link", "link": shown},
    )
