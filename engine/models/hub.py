"""The Hugging Face Hub: search, what a repository holds, and headers of model files that are not here.

huggingface_hub speaks to the API; files come through `engine.models.download`. Nothing is imported from it, and
nothing reaches the network, before the first call.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from engine import log
from engine.errors import EngineError, HubUnreachable, InvalidRequest
from engine.models import hub_token, safe_names
from engine.models.gguf_format import read_header_from
from engine.models.gguf_header import GgufHeader
from engine.models.http import Access, Fault, redacted
from engine.models.hub_errors import fault_error, known_error
from engine.models.hub_names import HubFile, ModelSet, find_set, model_sets
from engine.models.hub_remote import RemoteFile, read_text
from engine.models.not_gguf import shown

__all__ = ["Hub", "HubFile", "HubModel", "ModelSet", "RepoInfo", "SearchPage", "find_set"]

DEFAULT_ENDPOINT = "https://huggingface.co"
Sort = Literal["trending", "downloads", "likes", "updated", "created"]
_SORTS = {
    "trending": "trendingScore",
    "downloads": "downloads",
    "likes": "likes",
    "updated": "lastModified",
    "created": "createdAt",
}
_SEARCH_FIELDS = ("author", "downloads", "likes", "lastModified", "gated", "private", "tags", "gguf", "pipeline_tag")
_TIMEOUT_S = 20.0
_MAX_PAGE = 100
_MAX_CARD_BYTES = 1024 * 1024
_MAX_FILES = 20_000
_KEPT_HEADERS = 48
#: vocabularies are not kept, their length is
_MAX_ARRAY = 4096


class HubModel(msgspec.Struct, frozen=True):
    """A row of a search.

    Attributes:
        n_params, architecture, n_ctx_train: of one GGUF file of the repository, as the hub read it; 0 and "" unknown.
        gated: access has to be asked for on the hub's page.
        updated: time of the last change, ISO 8601; "" unknown.
    """

    repo: str
    author: str = ""
    downloads: int = 0
    likes: int = 0
    license: str = ""
    gated: bool = False
    private: bool = False
    updated: str = ""
    task: str = ""
    n_params: int = 0
    architecture: str = ""
    n_ctx_train: int = 0
    tags: tuple[str, ...] = ()


class SearchPage(msgspec.Struct, frozen=True):
    """`next` is the cursor of the following page, "" after the last."""

    rows: tuple[HubModel, ...]
    next: str = ""


class RepoInfo(msgspec.Struct, frozen=True):
    """A repository at one commit.

    Attributes:
        revision_sha: the commit; downloads are bound to it.
        refused: names of files that were left out because no file of ours may have them.
    """

    repo: str
    revision_sha: str
    files: tuple[HubFile, ...]
    license: str = ""
    gated: bool = False
    private: bool = False
    downloads: int = 0
    likes: int = 0
    updated: str = ""
    tags: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[ModelSet, ...]:
        """The models that can be downloaded, smallest first."""
        return model_sets(self.files)


class Hub:
    """One hub. All methods block and may be called from any thread; none before the user asks for the network.

    Args:
        endpoint: its address; None takes `HF_ENDPOINT` or the public hub.
        token: gives the access token, or None; by default `hub_token.find`.
    """

    def __init__(self, endpoint: str | None = None, token: Callable[[], str | None] | None = None) -> None:
        self.endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise InvalidRequest(
                f"{shown(self.endpoint, 100)} is no address of a hub",
                hint="It begins with https:// and holds no password.",
                details={"field": "endpoint"},
            )
        self.access = Access(self.endpoint, token or (lambda: hub_token.find(self.endpoint)))
        self._headers: OrderedDict[str, GgufHeader] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def offline(self) -> bool:
        """The user forbids the network through `HF_HUB_OFFLINE`."""
        return any(
            os.environ.get(name, "").strip().upper() in ("1", "ON", "YES", "TRUE")
            for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        )

    def check_online(self) -> None:
        """Raises HubUnreachable in offline mode."""
        if self.offline:
            raise HubUnreachable(
                "Offline mode is on, so the hub is not asked",
                hint="Unset HF_HUB_OFFLINE to use the network.",
                details={"offline": True},
            )

    def resolve_url(self, repo: str, revision: str, path: str) -> str:
        """Where a file is fetched from. The names must be checked (`safe_names`)."""
        return f"{self.endpoint}/{repo}/resolve/{quote(revision, safe='')}/{quote(path, safe='/')}"

    # ------------------------------------------------------------------ search and listing

    def search(self, query: str = "", sort: Sort = "trending", limit: int = 30, cursor: str = "") -> SearchPage:
        """One page of repositories with GGUF files. `cursor` is `SearchPage.next` of the page before.

        Raises:
            HubUnreachable, HubAccessDenied (a refused token), InvalidRequest.
        """
        if sort not in _SORTS:
            raise InvalidRequest(f"There is no order {sort!r}", details={"field": "sort"})
        params: list[tuple[str, str | int | float | bool | None]] = [("filter", "gguf"), ("sort", _SORTS[sort])]
        params += [("limit", str(max(1, min(limit, _MAX_PAGE))))]
        params += [("expand", name) for name in _SEARCH_FIELDS]
        if query.strip():
            params.append(("search", query.strip()[:200]))
        if cursor:
            params.append(("cursor", cursor))
        with self._asking("the search"):
            from huggingface_hub.utils._http import get_session, hf_raise_for_status

            response = get_session().get(
                f"{self.endpoint}/api/models", params=params, headers=self._api_headers(), timeout=_TIMEOUT_S
            )
            hf_raise_for_status(response)
            rows = tuple(row for item in response.json() if (row := _row(item)) is not None)
            following = response.links.get("next", {}).get("url", "")
        # only the cursor is taken from the link: where it is sent is not for the server to say
        return SearchPage(rows, (parse_qs(urlsplit(following).query).get("cursor") or [""])[0])

    def info(self, repo: str, revision: str = "main") -> RepoInfo:
        """What a repository holds, with sizes and hashes.

        Raises:
            HubNotFound, HubAccessDenied, HubUnreachable, UnsafeName (of the repository).
        """
        safe_names.repo_parts(repo)
        with self._asking(repo):
            info = self._api().model_info(repo, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
            commit = str(info.sha or "")
            if not safe_names.is_commit(commit):
                raise ValueError("no commit")
            found = [_file(s.rfilename, s.size, (s.lfs or {}).get("sha256")) for s in (info.siblings or [])]
            if any(file is None for file in found):  # a mirror that leaves sizes out
                found = self._tree(repo, commit)
        files = [file for file in found[:_MAX_FILES] if file is not None]
        return RepoInfo(
            repo=repo,
            revision_sha=commit,
            files=tuple(file for file in files if not safe_names.why_unsafe(file.path)),
            license=_license(info.card_data, info.tags),
            gated=bool(info.gated),
            private=bool(info.private),
            downloads=info.downloads or 0,
            likes=info.likes or 0,
            updated=info.last_modified.isoformat() if info.last_modified else "",
            tags=tuple(map(str, info.tags or ())),
            refused=tuple(shown(f.path) for f in files if safe_names.why_unsafe(f.path) not in ("", safe_names.HIDDEN)),
        )

    def _tree(self, repo: str, commit: str) -> list[HubFile | None]:
        entries = self._api().list_repo_tree(repo, recursive=True, revision=commit)
        return [
            _file(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None)
            for entry in entries
            if hasattr(entry, "size")
        ]

    def card(self, repo: str, revision: str = "main") -> str:
        """The model card (README.md) as text, cut after 1 MiB; "" if there is none.

        Raises:
            HubAccessDenied, HubUnreachable
        """
        safe_names.repo_parts(repo)
        self.check_online()
        url = self.resolve_url(repo, revision, "README.md")
        try:
            return read_text(url, self.access, _MAX_CARD_BYTES, _TIMEOUT_S)
        except Fault as fault:
            if fault.kind == "missing":
                return ""
            raise fault_error(fault, repo) from fault

    # ------------------------------------------------------------------ headers

    def header(self, repo: str, revision: str, path: str, sha256: str | None = None) -> GgufHeader:
        """The header of a file on the hub, fetched by range: 8 MiB first, doubled as needed up to 64 MiB.

        Long lists (vocabularies) are left out; their length is known. A file of known `sha256` is asked for once.

        Raises:
            HubNotFound, HubAccessDenied, HubUnreachable; NotAModel, ModelFileDamaged, UnsupportedModel.
        """
        safe_names.repo_parts(repo)
        name = safe_names.safe_parts(path)[-1]
        key = sha256 or (f"{repo}@{revision}:{path}" if safe_names.is_commit(revision) else "")
        with self._lock:
            if key in self._headers:
                self._headers.move_to_end(key)
                return self._headers[key]
        self.check_online()
        try:
            with RemoteFile(self.resolve_url(repo, revision, path), self.access, path, _TIMEOUT_S) as remote:
                header = read_header_from(cast(BinaryIO, remote), Path(name), remote.size_bytes, max_array=_MAX_ARRAY)
        except Fault as fault:
            raise fault_error(fault, repo) from fault
        if key:
            with self._lock:
                self._headers[key] = header
                while len(self._headers) > _KEPT_HEADERS:
                    self._headers.popitem(last=False)
        return header

    # ------------------------------------------------------------------ huggingface_hub

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(
            endpoint=self.endpoint,
            # False, not None: with None the library would look for a token of its own, whatever the hub
            token=self._token() or False,
            library_name="inglenook",
        )

    def _token(self) -> str | None:
        import httpx

        header = self.access.header_for(httpx.URL(self.endpoint)).get("Authorization", "")
        return header.removeprefix("Bearer ") or None

    def _api_headers(self) -> dict[str, str]:
        from huggingface_hub.utils._headers import build_hf_headers

        return dict(build_hf_headers(token=self._token() or False, library_name="inglenook"))

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turns the library's errors into ours."""
        self.check_online()
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            yield
        except EngineError:
            raise
        except Exception as error:
            # by name: what the library is built on has changed before, and its errors with it
            known = known_error(error, what, self.endpoint)
            if known is None:
                raise
            log.get("hub").warning("%s: %s", shown(what, 100), redacted(known.message))
            raise known from error


def _row(item: Any) -> HubModel | None:
    """One row of a search; None if it is not usable."""
    if not isinstance(item, dict):
        return None
    repo = str(item.get("id") or item.get("modelId") or "")
    try:
        safe_names.repo_parts(repo)
    except EngineError:
        return None
    told = item.get("gguf")
    gguf = told if isinstance(told, dict) else {}
    tags = tuple(str(tag) for tag in item.get("tags") or () if isinstance(tag, str))
    return HubModel(
        repo=repo,
        author=str(item.get("author") or repo.partition("/")[0]),
        downloads=_whole(item.get("downloads")),
        likes=_whole(item.get("likes")),
        license=_license(None, tags),
        gated=bool(item.get("gated")),
        private=bool(item.get("private")),
        updated=str(item.get("lastModified") or ""),
        task=str(item.get("pipeline_tag") or ""),
        n_params=_whole(gguf.get("total")),
        architecture=str(gguf.get("architecture") or ""),
        n_ctx_train=_whole(gguf.get("context_length")),
        tags=tags,
    )


def _whole(value: Any) -> int:
    return max(0, int(value)) if isinstance(value, int | float) and value == value and abs(value) < 1e18 else 0


def _license(card: Any, tags: Any) -> str:
    named = getattr(card, "license", None)
    if isinstance(named, str) and named:
        return named[:100]
    return next((str(tag)[8:108] for tag in tags or () if str(tag).startswith("license:")), "")


def _file(path: str, size: Any, sha256: Any) -> HubFile | None:
    if not isinstance(size, int) or size < 0:
        return None
    text = str(sha256 or "").lower()
    return HubFile(path, size, text if safe_names.is_sha256(text) else None)
