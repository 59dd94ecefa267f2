"""`inglenook fit` of a repository on the hub: one header is fetched, everything else is worked out from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli_models import parse_wanted
from engine.errors import InvalidRequest
from engine.fit import lists, quality, speed
from engine.fit.other_quant import requantized
from engine.fit.plan_records import FitPlan, Machine, Sibling, SpeedRange, Wishes
from engine.fit.words import size_text
from engine.model_choice import best_set
from engine.models.hub_names import ModelSet, find_set
from engine.models.not_gguf import shown

if TYPE_CHECKING:
    from engine.models.gguf_header import GgufHeader
    from engine.models.hub import Hub, RepoInfo

_REPO = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
_FILE = re.compile(r"[\w-][\w.-]*/[\w.-]+(/[^/\\]+)+\.gguf", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://|hf\.co/|huggingface\.co/)", re.IGNORECASE)


def names_repository(text: str) -> bool:
    """True if this can only mean something on a hub. A path whose first folder is here means a file that is missing."""
    if _ADDRESS.match(text):
        return True
    if text.startswith((".", "/", "~")) or Path(text.partition("/")[0]).is_dir():
        return False
    is_repo = _REPO.fullmatch(text) is not None and not text.lower().endswith(".gguf")
    return is_repo or _FILE.fullmatch(text) is not None


@dataclass(frozen=True)
class Remote:
    """A model of a repository.

    Attributes:
        item: the set that the plan is for. header, more: its headers, fetched or worked out.
        best: the set to take on this machine.
        fetched, fetched_more: the headers as they came, which every other quantization is judged by.
    """

    info: RepoInfo
    item: ModelSet
    best: ModelSet | None
    header: GgufHeader
    more: tuple[GgufHeader, ...]
    fetched: GgufHeader
    fetched_more: tuple[GgufHeader, ...]
    notes: tuple[str, ...] = ()

    @property
    def siblings(self) -> tuple[Sibling, ...]:
        return tuple(
            Sibling(quality.plain_name(one.label), one.size_bytes)
            for one in self.info.sets
            if one.complete and one.name != self.item.name
        )

    def title(self) -> str:
        item = self.item
        words = quality.words(quality.plain_name(item.label))
        return f"{self.info.repo}  {item.label}, {size_text(item.size_bytes)}, {words}"


def find(text: str, machine: Callable[[], Machine]) -> Remote:
    """Ask the hub. The header of one file is fetched; of a split model that is named, or has no single file beside
    it, those of its parts.

    Raises:
        HubNotFound, HubAccessDenied, HubUnreachable; InvalidRequest (no such file or model in it); what is wrong with
        the file.
    """
    from engine.models.hub import Hub

    hub = Hub()
    repo, revision, wanted = parse_wanted(text, hub.endpoint)
    info = hub.info(repo, revision or "main")
    sets = [item for item in info.sets if item.complete]
    if not sets:
        raise InvalidRequest(
            f"{repo} holds no complete GGUF model",
            hint=f'Look for a repository with GGUF files: inglenook models search "{repo.partition("/")[2]}"',
            details={"field": "model", "repo": repo},
        )
    named = find_set(sets, wanted) if wanted else None
    if wanted and named is None:
        labels = ", ".join(dict.fromkeys(one.label for one in sets))
        raise InvalidRequest(
            f"{repo} holds no complete {shown(wanted, 100)}",
            hint=f"It holds: {labels}",
            details={"field": "model", "repo": repo},
        )
    source = named or best_set([one for one in sets if len(one.files) == 1] or sets, None, None) or sets[0]
    header, more = _fetch(hub, info, source)
    best = best_set(sets, header, machine())
    item = named or best or source
    if item.name == source.name:
        return Remote(info, item, best, header, more, header, more)
    made = requantized(header, item.label, item.size_bytes, more)
    note = f"The figures are worked out from the header of {source.label} and the size of the file."
    return Remote(info, item, best, made, (), header, more, (note,))


def _fetch(hub: Hub, info: RepoInfo, item: ModelSet) -> tuple[GgufHeader, tuple[GgufHeader, ...]]:
    headers = [hub.header(info.repo, info.revision_sha, file.path, file.sha256) for file in item.files]
    return headers[0], tuple(headers[1:])


# ------------------------------------------------------------------ the repository as a list


def rows(
    remote: Remote, found: FitPlan, machine: Machine, wishes: Wishes, ratios: speed.Ratios | None
) -> list[dict[str, Any]]:
    """Every quantization of the repository, smallest first. The planned one has its plan's verdict, the others are
    judged by their sizes."""
    made = []
    for item in remote.info.sets:
        if not item.complete:
            continue
        if item.name == remote.item.name:
            verdict, layers, missing, tps = found.verdict, found.options.n_gpu_layers, found.missing_bytes, found.speed
        else:
            judged = lists.judge(
                remote.fetched,
                machine,
                wishes,
                more=remote.fetched_more,
                size_bytes=item.size_bytes,
                label=quality.plain_name(item.label),
                ratios=ratios,
            )
            verdict, layers, missing, tps = judged.verdict, judged.n_gpu_layers, judged.missing_bytes, judged.speed
        best = remote.best is not None and item.name == remote.best.name
        made.append(_row(item, verdict, layers, found.n_layers, missing, tps, best))
    return made


def _row(
    item: ModelSet, verdict: str, layers: int, n_layers: int, missing: int, tps: SpeedRange, best: bool
) -> dict[str, Any]:
    return {
        "quantization": item.label,
        "file": item.files[0].path,
        "n_files": len(item.files),
        "size_bytes": item.size_bytes,
        "verdict": verdict,
        "gpu_layers": layers,
        "n_layers": n_layers,
        "missing_bytes": missing,
        "speed": {
            "decode_tps_low": round(tps.decode_tps_low, 2),
            "decode_tps_high": round(tps.decode_tps_high, 2),
            "basis": tps.basis,
        },
        "best": best,
    }


def record(remote: Remote, quantizations: list[dict[str, Any]]) -> dict[str, Any]:
    """What stands in the JSON beside the plan."""
    return {
        "repo": remote.info.repo,
        "revision": remote.info.revision_sha,
        "file": remote.item.files[0].path,
        "quantization": remote.item.label,
        "size_bytes": remote.item.size_bytes,
        "quantizations": quantizations,
    }


def lines(quantizations: Sequence[dict[str, Any]], verdicts: dict[str, str]) -> Iterator[str]:
    """The list for a terminal."""
    yield ""
    yield "In this repository:"
    for row in quantizations:
        words = verdicts[row["verdict"]]
        if row["verdict"] == "split":
            words += f" ({row['gpu_layers']} of {row['n_layers']} layers on the GPU)"
        if row["best"]:
            words += "; best for this machine"
        yield f"  {row['quantization']:<14} {size_text(row['size_bytes']):>10}  {words}"
