"""Settings: checked when set, written whole or not at all, and never a reason not to start."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import settings as module
from engine.engine_options import Adapter, EngineOptions
from engine.errors import InvalidRequest, StorageFailed
from engine.sampling import SamplingParams
from engine.settings import Settings

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.json"


def kept_copies(path: Path) -> list[Path]:
    return sorted(path.parent.glob("settings.json.damaged-*"))


def test_defaults_without_a_file_and_nothing_is_written_unasked(path: Path) -> None:
    settings = Settings(path)
    assert settings.theme == "system"
    assert settings.sampling == SamplingParams()
    assert settings.engine == EngineOptions()
    assert settings.notes == []
    settings.theme = "dark"
    assert settings.dirty
    assert not path.exists()
    assert settings.save() is True
    assert settings.save() is False
    assert Settings(path).theme == "dark"


def test_every_setting_survives_a_round_trip(path: Path) -> None:
    values: dict[str, Any] = {
        "theme": "light",
        "last_model": "/m/模型 \udcff.gguf",  # a file name that is no text
        "recent_models": ["b", "a"],
        "system_prompt": 'Line\n"quoted" \\ 😀',
        "sampling": SamplingParams(temperature=0.1, seed=0, stop=("x",), logit_bias={5: -math.inf}),
        "engine": EngineOptions(n_ctx=8192, n_gpu_layers=0, n_threads=3, use_mlock=True, flash_attention="on"),
        "model_engine": {
            "/m/模型 \udcff.gguf": EngineOptions(
                kv_type_v="q8_0", tensor_split=(3.0, 1.0), adapters=(Adapter("/a/\udcff.gguf", 0.5),)
            )
        },
        "enter_sends": False,
        "reduced_motion": True,
        "text_scale": 1.5,
        "show_status": False,
        "overflow": "error",
        "kv_on_disk": False,
        "kv_disk_gib": 2.5,
        "speculate": False,
        "trace": False,
        "trace_cap_mib": 12.5,
        "models_folder": "/m/模型",
        "extra_folders": ["/a", "/b"],
        "update_daily": True,
        "update_feed": "https://example.org/latest.json",
        "update_asked_s": 1.8e9,
        "update_seen": ["0.2.0", "https://example.org/0.2.0", "2026-12-01"],
    }
    assert set(values) == set(Settings.declared()), "every declared setting belongs into this test"
    settings = Settings(path)
    for name, value in values.items():
        setattr(settings, name, value)
    settings.save()
    read = Settings(path)
    assert read.notes == []
    values["sampling"] = SamplingParams(temperature=0.1, seed=0, stop=("x",), logit_bias={5: -1e9})
    assert {name: getattr(read, name) for name in values} == values


def test_the_first_settings_file_ever_still_opens(path: Path) -> None:
    shutil.copy(DATA / "settings-schema1.json", path)
    settings = Settings(path)
    assert settings.notes == []
    assert (settings.theme, settings.overflow) == ("dark", "error")
    assert settings.engine == EngineOptions(n_ctx=4096, n_threads=4)
    assert settings.sampling.logit_bias == {7: -1e9}
    assert settings.recent_models[0] == "/models/模型 q4.gguf"


def test_every_setting_has_help_and_a_legal_default() -> None:
    for name, setting in Settings.declared().items():
        assert setting.name == name
        assert setting.doc.endswith(".")
        assert setting.check(setting.default) == setting.default


def test_an_undeclared_name_raises(path: Path) -> None:
    settings = Settings(path)
    with pytest.raises(AttributeError):
        settings.them = "dark"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        settings.notes = []
    with pytest.raises(AttributeError):
        _ = settings.them  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theme", "pink"),
        ("theme", None),
        ("theme", 1),
        ("enter_sends", 1),
        ("enter_sends", "true"),
        ("engine", 3),
        ("engine", {"n_ctx": True}),
        ("engine", {"n_ctx": 0}),
        ("engine", {"n_ctx": 4096.5}),
        ("engine", {"n_ctx": 2**31}),
        ("engine", {"use_mmap": "yes"}),
        ("engine", EngineOptions(kv_type_k="q9_9")),
        ("engine", EngineOptions(flash_attention="off", kv_type_v="q8_0")),
        ("engine", EngineOptions(n_threads="many")),  # type: ignore[arg-type]
        ("model_engine", []),
        ("model_engine", {"/m.gguf": {"n_batch": 0}}),
        ("model_engine", {"/m.gguf": EngineOptions(adapters=(Adapter("/a", math.inf),))}),
        ("model_engine", {"/m.gguf": EngineOptions(adapters=(Adapter("/a"), Adapter("/a", 2.0)))}),
        ("text_scale", math.nan),
        ("text_scale", True),
        ("text_scale", 99),
        ("recent_models", "one"),
        ("recent_models", [1]),
        ("sampling", {"temperature": -1}),
        ("sampling", {"temprature": 1}),
        ("sampling", SamplingParams(top_p=2)),
        ("sampling", 3),
    ],
)
def test_a_bad_value_is_refused_and_changes_nothing(path: Path, name: str, value: Any) -> None:
    settings = Settings(path)
    before = settings.as_dict()
    with pytest.raises(InvalidRequest) as caught:
        setattr(settings, name, value)
    assert caught.value.details["field"] == name
    assert name in caught.value.message
    assert settings.as_dict() == before
    assert not settings.dirty


def test_options_for_a_model_that_say_nothing_are_not_kept(path: Path) -> None:
    settings = Settings(path)
    settings.model_engine = {"/a.gguf": EngineOptions(), "/b.gguf": EngineOptions(n_ctx=512)}
    assert settings.model_engine == {"/b.gguf": EngineOptions(n_ctx=512)}


def test_a_list_handed_out_is_a_copy(path: Path) -> None:
    settings = Settings(path)
    settings.model_engine["/a.gguf"] = EngineOptions(n_ctx=512)
    assert settings.model_engine == {}
    settings.recent_models = ["a"]
    settings.recent_models.append("b")
    assert settings.recent_models == ["a"]
    assert Settings.declared()["recent_models"].default == []


def test_subscribers_hear_of_changes_only(path: Path) -> None:
    settings = Settings(path)
    heard: list[str] = []
    stop = settings.subscribe(heard.append)
    settings.theme = "dark"
    settings.theme = "dark"
    settings.reset("theme")
    stop()
    stop()
    settings.theme = "light"
    assert heard == ["theme", "theme"]


def test_recent_models_are_few_and_unique(path: Path) -> None:
    settings = Settings(path)
    for number in range(20):
        settings.remember_model(str(number))
    settings.remember_model("15")
    assert settings.last_model == "15"
    assert settings.recent_models[:3] == ["15", "19", "18"]
    assert len(settings.recent_models) == module.MAX_RECENT


def test_unknown_keys_are_kept_but_not_shown(path: Path) -> None:
    path.write_text('{"schema_version": 1, "future": {"a": [1]}, "theme": "dark"}')
    settings = Settings(path)
    assert "future" not in settings.as_dict()
    settings.theme = "light"
    settings.save()
    assert json.loads(path.read_text())["future"] == {"a": [1]}


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 65536,
        b"",
        b'{"theme": "dark", "n_ct',
        b"[1, 2]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"schema_version": "one"}',
        b'{"schema_version": true}',
        b'{"schema_version": 0}',
        b'{"future": NaN}',
        b'{"n_ctx": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda content: repr(content[:24]),
)
def test_a_damaged_file_is_set_aside(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    settings = Settings(path)
    assert settings.theme == "system"
    assert len(settings.notes) == 1
    assert "damaged" in settings.notes[0]
    [kept] = kept_copies(path)
    assert kept.read_bytes() == content
    assert not path.exists()
    settings.theme = "dark"
    settings.save()
    path.write_bytes(content)  # damaged again within the same second: the first copy must survive
    Settings(path)
    assert len(kept_copies(path)) == 2


def test_one_bad_value_costs_only_itself(path: Path) -> None:
    content = '{"theme": 7, "engine": {"n_ctx": 2048, "later": 1}, "sampling": {"top_k": "many"}}'
    path.write_text(content, encoding="utf-8-sig")
    settings = Settings(path)
    assert (settings.theme, settings.engine.n_ctx, settings.sampling) == ("system", 2048, SamplingParams())
    assert len(settings.notes) == 1
    assert "theme" in settings.notes[0]
    assert "sampling" in settings.notes[0]
    [kept] = kept_copies(path)
    assert '"many"' in kept.read_text()
    assert path.exists()


def test_a_newer_file_is_used_but_never_written(path: Path) -> None:
    content = json.dumps({"schema_version": module.SCHEMA + 1, "theme": "dark", "engine": "changed its type"})
    path.write_text(content)
    settings = Settings(path)
    assert settings.read_only
    assert settings.theme == "dark"
    assert settings.engine == EngineOptions()
    assert "newer" in settings.notes[0]
    settings.theme = "light"
    assert settings.save() is False
    assert path.read_text() == content
    assert kept_copies(path) == []


def test_an_unreadable_file_is_left_alone(path: Path) -> None:
    path.mkdir()
    settings = Settings(path)
    assert settings.read_only
    assert settings.notes
    settings.theme = "dark"
    assert settings.save() is False


def test_a_migration_renames_and_keeps_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(data: dict[str, Any]) -> dict[str, Any]:
        data["theme"] = data.pop("colours")
        return data

    monkeypatch.setattr(module, "SCHEMA", 2)
    monkeypatch.setattr(module, "MIGRATORS", {1: rename})
    old = '{"schema_version": 1, "colours": "dark"}'
    path.write_text(old)
    settings = Settings(path)
    assert settings.theme == "dark"
    assert settings.dirty
    settings.save()
    assert json.loads(path.read_text())["schema_version"] == 2
    assert path.with_name("settings.json.schema1").read_text() == old
    assert Settings(path).theme == "dark"


def test_a_failing_migration_rolls_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: dict[str, Any]) -> dict[str, Any]:
        data.clear()
        raise KeyError("oops")

    monkeypatch.setattr(module, "SCHEMA", 2)
    monkeypatch.setattr(module, "MIGRATORS", {1: broken})
    path.write_text('{"schema_version": 1, "theme": "dark", "enter_sends": false}')
    settings = Settings(path)
    assert (settings.theme, settings.enter_sends) == ("dark", False)
    assert len(settings.notes) == 1


def test_a_failed_save_stays_dirty(path: Path) -> None:
    settings = Settings(path.parent / "missing" / "settings.json")
    settings.theme = "dark"
    with pytest.raises(StorageFailed):
        settings.save()
    assert settings.dirty
    (path.parent / "missing").mkdir()
    assert settings.save() is True


def test_threads_setting_and_saving_leave_a_whole_file(path: Path) -> None:
    settings = Settings(path)
    done = threading.Event()

    def change() -> None:
        for number in range(2000):
            settings.engine = EngineOptions(n_ctx=number + 1)
            settings.recent_models = [str(number)] * (number % 5)
        done.set()

    thread = threading.Thread(target=change)
    thread.start()
    while not done.is_set():
        settings.save()
        if path.exists():
            json.loads(path.read_text())
    thread.join()
    settings.save()
    assert Settings(path).engine.n_ctx == 2000
    assert os.listdir(path.parent).count("settings.json") == 1
