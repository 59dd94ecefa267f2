"""What a first and a second start are asked to open: files as if dropped, links that show and never do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from models_help import LAPTOP, NO_GPU, StandInDownloads, repo_info, use_machine
from PySide6.QtCore import Qt
from second_start import SECOND

from desktop import __main__ as entry
from desktop import app, openings
from desktop.single_instance import SingleInstance
from desktop.views.hub.models_view import DISCOVER
from engine.models.catalog import load
from engine.models.links import MAX_LENGTH

LINK = "inglenook://models/maker/Model-GGUF"


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> StandInDownloads:
    use_machine(monkeypatch, LAPTOP)
    return StandInDownloads()


def window_with(shell: Any, downloads: StandInDownloads) -> Any:
    one = shell()
    one.app.engine.library.downloads.stop()
    one.app.engine.library.downloads = downloads
    return one


def linked(one: Any, link: str) -> Any:
    """The page after another start with this link."""
    one.app.on_second_start([link])
    one.wait(lambda: one.window.models.view is not None and one.window.models.view.model_page.repo != "")
    return one.window.models.view.model_page


# ---- arguments


def test_what_arguments_become(tmp_path: Path) -> None:
    strange = tmp_path / "Ünï cödé %41#?.gguf"
    assert openings.argument(strange.as_uri()) == str(strange)
    assert openings.argument(f"FILE://localhost{tmp_path.as_posix()}/a.gguf") == f"{tmp_path.as_posix()}/a.gguf"
    assert openings.argument("file://elsewhere/a.gguf") == "file://elsewhere/a.gguf"
    assert openings.argument("file:///C:/Models/a.gguf") == "C:/Models/a.gguf"
    assert openings.argument("a.gguf") == "a.gguf"
    assert openings.argument(LINK) == LINK
    assert len(openings.argument("inglenook:" + "x" * 10**6)) == MAX_LENGTH + 1
    assert openings.absolute(LINK) == LINK
    assert openings.absolute("a.gguf") == str(Path("a.gguf").absolute())
    assert openings.file_of([LINK]) == ""
    assert openings.file_of([LINK, "notes", "b.GGUF"]) == "b.GGUF"
    assert openings.file_of(["a model without an ending"]) == "a model without an ending"


def run_main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, Any]:
    got: list[app.Options] = []
    monkeypatch.setattr("desktop.display.problem", lambda: "")
    monkeypatch.setattr("desktop.signals.catch", lambda: None)
    monkeypatch.setattr(app, "run", lambda options, argv: got.append(options) or 0)
    code = entry.main(arguments)
    return code, (got or [None])[0]


def test_the_entry_takes_files_addresses_and_links(model_file: Path, monkeypatch, capsys) -> None:
    code, options = run_main([model_file.as_uri(), LINK], monkeypatch)
    assert code == 0 and options.files == (str(model_file), LINK)
    for missing in ("no-such.gguf", "x" * 5000, "a\0b", "file://elsewhere/a.gguf"):
        code, options = run_main([missing], monkeypatch)
        assert code == 2 and options is None
        words = capsys.readouterr().err
        assert "there is no command or file named" in words and "\0" not in words


# ---- a first start


def test_a_first_start_with_a_link_shows_its_page(qapp, qtbot, home: Path, shell, monkeypatch) -> None:
    """It loads the usual model as well, and the first steps of an empty profile do not cover the page."""
    monkeypatch.setattr(app, "Options", lambda **given: first_start_options(given))
    use_machine(monkeypatch, NO_GPU)
    one = shell(start=False, load_model=True)
    one.app.start()
    one.wait(lambda: one.window.models.view is not None and one.window.models.view.model_page.repo != "")
    qtbot.wait(300)
    assert one.window.views.currentWidget() is one.window.models.view
    assert one.window.models.view.model_page.repo == "maker/Model-GGUF"


_Options = app.Options


def first_start_options(given: dict[str, Any]) -> app.Options:
    return _Options(**given, files=(LINK,))


def test_the_window_has_the_programs_icon(shell) -> None:
    one = shell()
    icon = one.window.windowIcon()
    wall = icon.pixmap(64, 64).toImage().pixelColor(32, 8)
    assert wall.alpha() == 255 and wall.red() > 180 and wall.green() < 100, "the ember of the drawing"


# ---- a second start


def test_a_link_to_an_unknown_repository_asks_only_after_the_click(shell, downloads, qtbot) -> None:
    one = window_with(shell, downloads)
    page = linked(one, LINK + "?quant=q5_k_m")
    view = one.window.models.view
    assert one.window.views.currentWidget() is view and view.tab == DISCOVER and view.pages.currentWidget() is page
    assert page.title.text() == "Model-GGUF" and page.line.text() == "maker/Model-GGUF"
    assert page.state.title.text() == "A link named this repository" and page.ask.isVisible()
    one.wait(lambda: bool(view.discover._plans) and view.discover._waiting == 0)
    assert page.repo == "maker/Model-GGUF", "the first of the list must not take its place"
    assert downloads.asked == []
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    one.wait(lambda: len(page.table.table.rows) == 3 and all(row.plan for row in page.table.table.rows))
    assert ("info", "maker/Model-GGUF") in downloads.asked
    assert page.table.current_row.label == "Q5_K_M"
    assert not any(call[0] == "add" for call in downloads.asked)


def test_a_link_names_a_file(shell, downloads, qtbot) -> None:
    one = window_with(shell, downloads)
    page = linked(one, LINK + "?file=Model-Q8_0.gguf")
    page.ask.click()
    one.wait(lambda: len(page.table.table.rows) == 3 and all(row.plan for row in page.table.table.rows))
    assert page.table.current_row.key == "Model-Q8_0.gguf"


def test_what_the_link_names_and_the_repository_lacks_is_said(shell, downloads, qtbot) -> None:
    downloads.info_answer = repo_info(labels=("Q8_0",))
    one = window_with(shell, downloads)
    page = linked(one, LINK + "?file=Model-Q4_K_M.gguf")
    page.ask.click()
    one.wait(lambda: "Model-Q4_K_M.gguf, which the link named" in page.note.text())


def test_a_link_to_a_model_of_the_catalogue_needs_no_network(shell, downloads) -> None:
    model = load().find("qwen3-8b")
    assert model is not None
    one = window_with(shell, downloads)
    page = linked(one, f"inglenook://models/{model.repo.upper()}?quant=Q8_0")
    one.wait(lambda: bool(page.table.table.rows) and all(row.plan for row in page.table.table.rows))
    assert page.title.text() == model.name and page.repo == model.repo
    assert page.table.current_row.label == "Q8_0"
    assert page.ask.isVisible() and downloads.asked == []


@pytest.mark.parametrize(
    "link",
    ["inglenook://evil.example/a/b", LINK + "?file=../../x.gguf", "inglenook:\x1b[2J\n", "inglenook:" + "x" * 10**5],
)
def test_a_hostile_link_is_refused_with_words(shell, downloads, link: str) -> None:
    one = window_with(shell, downloads)
    one.window.show_settings()
    one.app.on_second_start([openings.argument(link)])
    assert one.window.views.currentWidget() is one.window.chat_page
    assert one.view.banner.isVisible()
    text = one.view.banner.accessibleDescription() or one.view.banner.accessibleName()
    assert "The link was not opened" in text
    assert one.window.models.view is None and downloads.asked == []


def test_a_file_without_an_ending_is_loaded_as_if_dropped(shell, tmp_path: Path) -> None:
    """The type is told by the file's first bytes, so a file manager hands over any name."""
    file = tmp_path / "a model"
    file.write_bytes(b"GGUF")
    one = shell()
    one.window.show_settings()
    one.app.on_second_start([str(file)])
    assert one.window.views.currentWidget() is one.window.chat_page
    one.wait(lambda: one.window.control.state.path == str(file))


SENDER = """
import json, sys
import desktop
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from PySide6.QtNetwork import QLocalSocket
from desktop.single_instance import server_name
app = QCoreApplication([])
socket = QLocalSocket()
socket.connectToServer(server_name(Path(sys.argv[1])))
assert socket.waitForConnected(2000)
socket.write(json.dumps({"files": ["inglenook:" + "x" * 50_000]}).encode() + b"\\n")
assert socket.waitForReadyRead(5000)
"""


def test_links_go_to_the_first_start_as_they_are(qtbot, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    first = SingleInstance(lock)
    assert first.acquire()
    got: list[list[str]] = []
    first.second_start.connect(got.append)
    second = subprocess.Popen([sys.executable, "-c", SECOND, str(lock), LINK, "a.gguf"], cwd=tmp_path)
    qtbot.waitUntil(lambda: second.poll() is not None, timeout=20_000)
    assert got == [[LINK, str(tmp_path.resolve() / "a.gguf")]]
    first.release()


def test_what_another_process_sends_is_cut_as_arguments_are(qtbot, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    first = SingleInstance(lock)
    assert first.acquire()
    got: list[list[str]] = []
    first.second_start.connect(got.append)
    other = subprocess.Popen([sys.executable, "-c", SENDER, str(lock)])
    qtbot.waitUntil(lambda: bool(got), timeout=10_000)
    assert len(got[0][0]) == MAX_LENGTH + 1
    qtbot.waitUntil(lambda: other.poll() is not None, timeout=20_000)
    assert other.returncode == 0
    first.release()
