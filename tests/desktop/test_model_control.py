"""The models to choose from are the library's; while it is being looked through, those that are quick to find."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "engine"))

from library_help import write_model, write_set

from engine.models.library import LibraryModel, ModelFile


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder without other programs in it."""
    folder = tmp_path / "user"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE", "LOCALAPPDATA", "APPDATA"):
        monkeypatch.setenv(name, str(folder))
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_the_picker_lists_the_library(shell, user: Path, home: Path, tmp_path: Path) -> None:
    write_model(home / "models" / "maker" / "One.gguf", "One")
    write_model(user / ".lmstudio" / "models" / "maker" / "Two-GGUF" / "Two.gguf", "Two")
    write_set(home / "models" / "half", "Half")[1].unlink()
    one = shell()
    control, popup = one.window.control, one.view.popup
    one.wait(lambda: bool(control.models) and isinstance(control.models[0], LibraryModel))
    assert {model.name for model in control.models} == {"One", "Two"}, "another program's too; nothing incomplete"
    popup.open_below(one.view.header.picker)
    one.wait(lambda: len(popup._rows()) == 2)
    one.app.engine.library.note_use(next(m.path for m in control.models if m.name == "Two"))
    one.result(one.app.engine.library.list())
    control.look()
    one.wait(lambda: control.models[0].name == "Two")
    one.wait(lambda: "Two" in popup._rows()[0].accessibleName())
    write_model(home / "models" / "Three.gguf", "Three")
    one.result(one.app.engine.library.scan())
    one.wait(lambda: len(control.models) == 3)
    popup.hide()


def test_what_is_quick_to_find_comes_first(shell, user: Path, home: Path, monkeypatch) -> None:
    write_model(home / "models" / "One.gguf", "One")
    one = shell(start=False)
    late: Future[list[LibraryModel]] = Future()
    threads: list[threading.Thread] = []
    monkeypatch.setattr(one.app.engine.library, "list", lambda: late)
    from engine.models import library

    real = library.list_models
    monkeypatch.setattr(
        library, "list_models", lambda *words: threads.append(threading.current_thread()) or real(*words)
    )
    control = one.window.control
    control.look()
    one.wait(lambda: bool(control.models))
    assert isinstance(control.models[0], ModelFile) and threads[0] is not threading.main_thread()
    late.set_result(
        [LibraryModel(path="/m/a.gguf", name="A"), LibraryModel(path="/m/b.gguf", name="B", complete=False)]
    )
    one.wait(lambda: [model.name for model in control.models] == ["A"])
    control.look()
    assert len(threads) == 1, "the library is known now"
