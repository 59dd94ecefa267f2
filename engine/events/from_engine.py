"""What the engine adds."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.events.base import Event
from engine.events.from_worker import Log, Memory, ModelInfo, PromptProgress, Token
from engine.events.sampled import Sampled
from engine.events.tracing import PromptTrace
from engine.events.watching import KvMap
from engine.figures import FitSummary
from engine.message import Chat, ErrorInfo, Message


class WorkerExited(Event, frozen=True):
    """The worker process is gone.

    Attributes:
        expected: True after an unload or a normal stop.
        error: what happened in words, with the last native log lines in its details; None if expected.
    """

    expected: bool
    error: ErrorInfo | None = None


class ModelState(Event, frozen=True):
    """State of the one loaded model as front ends show it.

    Attributes:
        status: "none", "loading", "ready", "failed".
        fraction: progress while loading, None where there is no real progress.
        model: filled when ready.
        error: filled when failed; `path` then says which model a reload would load.
        fit: the plan, from the moment it is made; when ready also in `model`, with the measured figures.
    """

    status: Literal["none", "loading", "ready", "failed"]
    path: str = ""
    name: str = ""
    fraction: float | None = None
    model: ModelInfo | None = None
    error: ErrorInfo | None = None
    fit: FitSummary | None = None


class ChatListChanged(Event, frozen=True):
    """Chats were added, renamed, deleted or reordered."""


class ChatChanged(Event, frozen=True):
    """The branch on screen of a chat is another now (edit, regenerate, delete, other version, settings)."""

    chat: Chat


class MessageAdded(Event, frozen=True):
    """A message was added under its parent and ends the active branch now. It is on disk.

    What stood on screen after its parent belongs to another branch from now on.
    """

    message: Message


class MessageChanged(Event, frozen=True):
    """A stored message has another content or status, or was pinned."""

    message: Message


class GenerationStarted(Event, frozen=True):
    chat_id: int
    message_id: int


class GenerationStep(Event, frozen=True):
    """A worker's token or prefill progress with the chat and message that it belongs to."""

    chat_id: int
    message_id: int
    step: Token | PromptProgress


class GenerationPrompt(Event, frozen=True):
    """The prompt of an answer of which a trace is kept, before its first step."""

    chat_id: int
    message_id: int
    prompt: PromptTrace


class GenerationFinished(Event, frozen=True):
    """The answer is complete and on disk, whatever its status. Its trace, where one is kept, is on disk too, or on its
    way there: it can be asked for from now on."""

    chat_id: int
    message: Message


class Notice(Event, frozen=True):
    """Something the user should know that belongs to no message (a damaged file was set aside, settings were reset)."""

    level: Literal["info", "warning", "error"]
    text: str
    hint: str = ""


class Resumed(Event, frozen=True):
    """The computer has slept: what was known of devices and free memory may be wrong. slept_s: seconds."""

    slept_s: float


class DownloadInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One download of a model (a file, or a set of shards with what belongs to it) as front ends show it.

    Attributes:
        id: names it in all calls; the same after a restart.
        label: the quantization, or the file's name.
        bytes_done, bytes_total: of all files together.
        speed_bps: bytes a second of the last seconds, None while nothing comes. eta_s: seconds left at it, if known.
        error: why it failed, is stalled or was paused by itself.
        paths: where the files will be, in the order of the set.
    """

    id: str
    repo: str
    label: str
    status: Literal["queued", "running", "paused", "stalled", "failed", "done", "verifying"]
    bytes_done: int = 0
    bytes_total: int = 0
    speed_bps: float | None = None
    eta_s: float | None = None
    error: ErrorInfo | None = None
    paths: tuple[str, ...] = ()


class DownloadChanged(Event, frozen=True):
    """A download has another state; while bytes come, a few times a second."""

    download: DownloadInfo


class LibraryChanged(Event, frozen=True):
    """Models were added, removed, renamed, checked or found damaged: ask for the list again."""


class VerifyProgress(Event, frozen=True):
    """Bytes hashed or copied so far of a model in the library. stage: "hash" or "copy"."""

    path: str
    bytes_done: int
    bytes_total: int
    stage: Literal["hash", "copy"] = "hash"


EngineEvent = (
    ModelState
    | Notice
    | Resumed
    | DownloadChanged
    | LibraryChanged
    | VerifyProgress
    | WorkerExited
    | Memory
    | Log
    | ChatListChanged
    | ChatChanged
    | MessageAdded
    | MessageChanged
    | KvMap
    | Sampled
    | GenerationStarted
    | GenerationPrompt
    | GenerationStep
    | GenerationFinished
)
