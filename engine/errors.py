"""What the world did to us, apart from bugs.

Every error that a user can cause or suffer is an `EngineError` with a stable `code`, a sentence that says
what happened, a `hint` that says what to do, and `details` for the folded part of a dialog. Anything else that
is raised is a bug of ours. Nothing may match on message texts; match on the class or the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class EngineError(Exception):
    """Base of all known errors.

    Attributes:
        code: stable word for the kind of error, the same in events, the command line and dialogs.
        message: one sentence, what happened.
        hint: what the user can do about it; empty if there is nothing.
        details: facts for the folded part (numbers, native log lines, paths).
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})


class InvalidRequest(EngineError):
    """A value given by the caller cannot be used; `details["field"]` names it."""

    code = "invalid_request"


class Gone(InvalidRequest):
    """A chat or a message that is not there, or not any more."""

    code = "gone"


class ModelNotFound(EngineError):
    code = "model_not_found"


class NotAModel(EngineError):
    """The file is not a GGUF model; `details["kind"]` says what it is (html, lfs_pointer, safetensors, ...)."""

    code = "not_a_model"


class ModelFileDamaged(EngineError):
    """A GGUF file that is cut short or malformed; `details` may hold `have_bytes` and `need_bytes`."""

    code = "model_damaged"


class UnsupportedModel(EngineError):
    """A sound file whose architecture or quantization this llama.cpp does not know."""

    code = "model_unsupported"


class NotEnoughMemory(EngineError):
    code = "not_enough_memory"


class ModelNotLoaded(EngineError):
    code = "model_not_loaded"


class AdapterMismatch(EngineError):
    """A LoRA adapter that does not belong to the model; `details["adapter"]` is its file."""

    code = "adapter_mismatch"


class LoadFailed(EngineError):
    """llama.cpp refused the model for a reason we could not name better; its log lines are in `details`."""

    code = "load_failed"


class ContextFull(EngineError):
    """The prompt has more tokens than the context holds; `details` holds `n_prompt` and `n_ctx`."""

    code = "context_full"


class TemplateFailed(EngineError):
    """The model's chat template is broken, refused the messages, or went over its time or size limit."""

    code = "template_failed"


class GrammarFailed(EngineError):
    """Under its JSON Schema or grammar an answer could not go on; the text so far stands."""

    code = "grammar_failed"


class Busy(EngineError):
    code = "busy"


class Cancelled(EngineError):
    code = "cancelled"


class WorkerDied(EngineError):
    """The worker process ended; `details` holds `exit_code`, `signal`, `log` (last native lines) and `doing`."""

    code = "worker_died"


class WorkerMismatch(EngineError):
    """The worker speaks another protocol version than this program."""

    code = "worker_mismatch"


class BackendMissing(EngineError):
    """llama.cpp cannot be loaded on this machine: library missing, CPU feature missing."""

    code = "backend_missing"


class DatabaseTooNew(EngineError):
    code = "database_too_new"


class DatabaseDamaged(EngineError):
    code = "database_damaged"


class DiskFull(EngineError):
    code = "disk_full"


class StorageFailed(EngineError):
    """Reading or writing our own files failed (permission, read-only disk, lock)."""

    code = "storage_failed"


class AlreadyRunning(EngineError):
    """Another Inglenook uses this profile."""

    code = "already_running"


class HubUnreachable(EngineError):
    """No usable answer from the hub: no network, offline mode, a server error; `details` may hold `retry_after_s`."""

    code = "hub_unreachable"


class HubNotFound(EngineError):
    """The hub knows no such repository, revision or file (or hides it from those without access)."""

    code = "hub_not_found"


class HubAccessDenied(EngineError):
    """The repository is gated or private, or the token was refused; `details["gated"]` tells the first case."""

    code = "hub_access_denied"


class UnsafeName(EngineError):
    """A server gave a name that no file of ours may have; `details["name"]`."""

    code = "unsafe_name"


class DownloadFailed(EngineError):
    """A download that cannot go on by itself; `details` holds what was seen."""

    code = "download_failed"


class ChecksumMismatch(EngineError):
    """All bytes came, but they are not the file's; `details` holds `expected` and `found` (SHA-256)."""

    code = "checksum_mismatch"


class UpdateCheckFailed(EngineError):
    """Whether there is a newer version is not known; `details["reason"]` says why."""

    code = "update_check_failed"


def by_code(code: str) -> type[EngineError]:
    """The error class for a code; plain `EngineError` for an unknown one."""

    def walk(cls: type[EngineError]) -> type[EngineError] | None:
        if cls.code == code:
            return cls
        return next((hit for sub in cls.__subclasses__() if (hit := walk(sub))), None)

    return walk(EngineError) or EngineError
