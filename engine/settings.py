"""The user's settings: declared once with type, limits and help; kept in one JSON file.

Reading and setting an attribute costs no disk access and is safe from any thread; `save()` writes. A file that
cannot be used never stops the program: it is set aside, defaults take its place, and `notes` says so in words.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from engine import setting as kinds
from engine.engine_options import EngineOptions
from engine.errors import InvalidRequest
from engine.paths import atomic_write, free_name, shown, time_stamp
from engine.sampling import SamplingParams
from engine.setting import Setting

#: Raise it together with a new entry in MIGRATORS when a key is renamed, removed or gets another meaning or type.
#: A new key with a default needs neither.
SCHEMA = 2
MAX_RECENT = 12


def _engine_options(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 had three options of a load as settings of their own."""
    moved = {name: data.pop(name, None) for name in ("n_ctx", "n_gpu_layers", "n_threads")}
    return {**data, "engine": {name: value for name, value in moved.items() if value is not None}}


#: schema n -> function from the data of schema n to that of n + 1
MIGRATORS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _engine_options}


class Settings:
    """All settings of a profile.

    - Assigning a name that is not declared raises AttributeError: a typing mistake is a bug.
    - Keys of the file that this version does not know are kept and written back, but not shown.
    - A file of a newer schema is left untouched: the keys that are understood are used, changes hold until the
      program ends, `read_only` is True and `save()` does nothing.
    - A file that is no JSON object is renamed to `settings.json.damaged-<time>`; a key with an unusable value falls
      back to its default, and a copy of the file is kept under such a name.

    Attributes:
        path: the JSON file.
        notes: sentences about the file that the user should see; empty in normal life.
        read_only: True if `save()` must not touch the file.
    """

    theme = Setting[str](
        "system", kinds.text, "Light or dark; system follows the desktop.", choices=("system", "light", "dark")
    )
    last_model = Setting[str]("", kinds.text, "The model file that is loaded at the next start.")
    recent_models = Setting[list[str]]([], kinds.texts, "Model files used lately, newest first.")
    system_prompt = Setting[str](
        "", kinds.text, "Instructions that stand before every new chat. A chat can have its own."
    )
    sampling = Setting[SamplingParams](
        SamplingParams(),
        kinds.sampling,
        "How the next token is chosen: temperature, top-k, top-p and so on.",
        dump=kinds.dump_sampling,
    )
    engine = Setting[EngineOptions](
        EngineOptions(),
        kinds.engine,
        "How models are loaded. What is not chosen is chosen automatically.",
        dump=msgspec.to_builtins,
    )
    model_engine = Setting[dict[str, EngineOptions]](
        {},
        kinds.engine_by_model,
        "The same for single models, by their files; it comes before what holds for all.",
        dump=msgspec.to_builtins,
    )
    enter_sends = Setting[bool](
        True, kinds.flag, "Enter sends the message and Shift+Enter starts a new line; off swaps them."
    )
    reduced_motion = Setting[bool](False, kinds.flag, "No animations.")
    text_scale = Setting[float](1.0, kinds.number, "Size of text, 1 is the system's own.", low=0.5, high=3.0)
    show_status = Setting[bool](True, kinds.flag, "The strip with speed, context use and memory under the chat.")
    overflow = Setting[str](
        "drop_oldest",
        kinds.text,
        "When a chat no longer fits the context: leave out its oldest turns, do so in the middle of an answer too, or "
        "stop with an error.",
        choices=("drop_oldest", "roll", "error"),
    )

    kv_on_disk = Setting[bool](
        True,
        kinds.flag,
        "Keep on disk what the model has read of a chat (its KV cache), so that an old chat goes on at once.",
    )
    kv_disk_gib = Setting[float](
        4.0,
        kinds.number,
        "How much all of that may take, in GiB; what was not used for longest goes.",
        low=0.1,
        high=100_000,
    )
    speculate = Setting[bool](
        True,
        kinds.flag,
        "Guess tokens ahead and check several of them in one step, where that is faster. The answer is the same.",
    )
    trace = Setting[bool](
        True,
        kinds.flag,
        "Keep a trace of every answer: what was read, how each token was chosen, and where the time went.",
    )
    trace_cap_mib = Setting[float](
        256.0, kinds.number, "How much all traces may take, in MiB; the oldest go.", low=1, high=100_000
    )
    models_folder = Setting[str]("", kinds.text, "Where models are kept. Empty: the folder of this profile.")
    extra_folders = Setting[list[str]]([], kinds.texts, "More folders with models, used where they are.")
    update_daily = Setting[bool](
        False,
        kinds.flag,
        "Ask for a new version by itself, at most once a day. It is only told; nothing is downloaded or installed.",
    )
    update_feed = Setting[str](
        "", kinds.text, "Address that is asked for the newest version. Empty: the one this build was made with."
    )
    update_asked_s = Setting[float](
        0.0, kinds.number, "When it was asked last, in seconds since 1970.", low=0, high=1e12
    )
    update_seen = Setting[list[str]]([], kinds.texts, "What the last answer said: version, page, day.")

    def __init__(self, path: Path) -> None:
        """Reads the file; a missing one means defaults. Never raises for what the file holds."""
        put = object.__setattr__
        put(self, "path", path)
        put(self, "notes", [])
        put(self, "read_only", False)
        put(self, "_values", {name: copy.copy(s.default) for name, s in self.declared().items()})
        put(self, "_unknown", {})
        put(self, "_subscribers", [])
        put(self, "_lock", threading.RLock())
        put(self, "_save_lock", threading.Lock())
        put(self, "_changes", 0)
        put(self, "_saved_changes", 0)
        self._read()

    path: Path
    notes: list[str]
    read_only: bool
    _values: dict[str, Any]
    _unknown: dict[str, Any]
    _subscribers: list[Callable[[str], None]]
    _lock: threading.RLock
    _save_lock: threading.Lock
    _changes: int
    _saved_changes: int

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.declared():
            raise AttributeError(f"no setting is named {name!r}")
        object.__setattr__(self, name, value)

    @classmethod
    def declared(cls) -> dict[str, Setting[Any]]:
        """Every setting by name, in the order of declaration."""
        return {name: item for name, item in vars(cls).items() if isinstance(item, Setting)}

    def as_dict(self) -> dict[str, Any]:
        """All values as plain data that JSON can hold."""
        with self._lock:
            return {name: s.dump(copy.copy(self._values[name])) for name, s in self.declared().items()}

    def reset(self, name: str) -> None:
        """Back to the default."""
        setattr(self, name, copy.copy(self.declared()[name].default))

    def remember_model(self, model: str) -> None:
        """Makes it the last model and the first of the recent ones."""
        self.last_model = model
        self.recent_models = [model, *(m for m in self.recent_models if m != model)][:MAX_RECENT]

    def subscribe(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Calls back with the name after each change, in the thread that changed it; returns the way to stop."""
        with self._lock:
            self._subscribers.append(callback)

        def stop() -> None:
            with self._lock, suppress(ValueError):
                self._subscribers.remove(callback)

        return stop

    @property
    def dirty(self) -> bool:
        """True if something was changed since the file was last written."""
        return self._changes != self._saved_changes

    def save(self) -> bool:
        """Writes the file if something changed; True if it was written. Not for the GUI thread: it waits for the disk.

        Raises:
            StorageFailed, DiskFull: the old file is untouched, the settings stay dirty.
        """
        with self._save_lock:
            with self._lock:
                if self.read_only or not self.dirty:
                    return False
                changes = self._changes
                data = {"schema_version": SCHEMA, **self._unknown, **self.as_dict()}
            atomic_write(self.path, _to_json(data))
            with self._lock:
                object.__setattr__(self, "_saved_changes", changes)
        return True

    def _set(self, name: str, value: Any) -> None:
        with self._lock:
            if self._values[name] == value:
                return
            self._values[name] = value
            object.__setattr__(self, "_changes", self._changes + 1)
            callbacks = list(self._subscribers)
        for callback in callbacks:
            callback(name)

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            self._keep_off(f"The settings in {shown(self.path)} cannot be read ({error.strerror}).")
            return
        try:
            data = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_such_number)
            if not isinstance(data, dict):
                raise ValueError("not an object")
            schema = data.pop("schema_version", SCHEMA)
            if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
                raise ValueError("schema_version is not a number")
        except (ValueError, RecursionError):
            self._set_aside("The settings file was damaged")
            return
        if schema > SCHEMA:
            self._keep_off(f"The settings in {shown(self.path)} were written by a newer Inglenook.")
        elif schema < SCHEMA:
            data = self._migrate(data, schema)
        self._take(data)

    def _take(self, data: dict[str, Any]) -> None:
        bad = []
        declared = self.declared()
        for name, value in data.items():
            setting = declared.get(name)
            if setting is None:
                self._unknown[name] = value
                continue
            try:
                self._values[name] = setting.check(value)
            except InvalidRequest as error:
                bad.append(error.message)
        if bad and not self.read_only:
            kept = free_name(self.path.with_name(f"{self.path.name}.damaged-{time_stamp()}"))
            with suppress(OSError):
                shutil.copyfile(self.path, kept)
            self.notes.append(f"Some settings could not be used; defaults are in their place: {' '.join(bad)}")

    def _migrate(self, data: dict[str, Any], schema: int) -> dict[str, Any]:
        """The data in today's schema; if a step fails, the data as it was. The old file is kept beside the new one."""
        with suppress(OSError):
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.schema{schema}"))
        migrated = copy.deepcopy(data)
        try:
            for step in range(schema, SCHEMA):
                migrated = MIGRATORS[step](migrated)
        except Exception as error:  # any failure: a broken step must not cost the user the other settings
            self.notes.append(f"Settings of an older version could not all be taken over ({error!r}).")
            return data
        object.__setattr__(self, "_changes", self._changes + 1)
        return migrated

    def _set_aside(self, what: str) -> None:
        target = free_name(self.path.with_name(f"{self.path.name}.damaged-{time_stamp()}"))
        try:
            os.replace(self.path, target)  # noqa: PTH105
        except OSError:
            self._keep_off(f"{what} and cannot be moved away.")
            return
        self.notes.append(f"{what}; defaults are used, and the old file is kept as {shown(target)}.")

    def _keep_off(self, why: str) -> None:
        object.__setattr__(self, "read_only", True)
        self.notes.append(f"{why} The file is left alone; changes hold until the program ends.")


def _to_json(data: dict[str, Any]) -> bytes:
    try:
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:  # a file name that is no text: Python holds its bytes as lone surrogates
        return json.dumps(data, indent=2, allow_nan=False).encode() + b"\n"


def _no_such_number(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")
