"""The library and the downloads in the window: what is here, what is damaged, what is on its way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from models_help import GIB, LAPTOP, StandInDownloads, open_models, use_machine
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent

from desktop.models.downloads import left_words, permille, speed_words, status_words
from desktop.views.hub.models_view import DOWNLOADS, LIBRARY
from desktop.views.library.import_dialog import ImportDialog
from engine.events import DownloadChanged, DownloadInfo
from engine.message import ErrorInfo


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    use_machine(monkeypatch, LAPTOP)
    monkeypatch.setenv("HOME", str(home))  # no models of other programs


@pytest.fixture
def library(shell, starter_model: Path):
    """A window whose library holds one sound model and one that was cut short."""
    one = shell()
    folder = one.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(starter_model, folder / "good.gguf")
    (folder / "cut.gguf").write_bytes(starter_model.read_bytes()[:3_000_000])
    view = open_models(one, StandInDownloads())
    view.show_tab(LIBRARY)
    one.wait(lambda: len(view.library.list.rows.rows) == 2)
    return one, view, folder


def click(view, path: Path) -> None:
    view.library.list.clicked.emit(view.library.list.rows.index_of(str(path)))


def test_rows_say_what_they_are(library) -> None:
    _, view, folder = library
    rows = {row.key: row for row in view.library.list.rows.rows}
    good, cut = rows[str(folder / "good.gguf")], rows[str(folder / "cut.gguf")]
    assert "Q4_1" in good.line and "MiB" in good.line and "never used" in good.line and good.chip is None
    assert cut.chip is not None and cut.chip.tone == "bad"
    assert "2 models" in view.library.count.text()


def test_a_damaged_row_names_its_next_step(library, qtbot) -> None:
    one, view, folder = library
    click(view, folder / "cut.gguf")
    page = view.library_page
    assert page.banner.isVisible() and not page.load_panel.isVisible()
    assert page.banner._action.text() == "Delete it"
    qtbot.mouseClick(page.banner._action, Qt.MouseButton.LeftButton)
    one.wait(lambda: not (folder / "cut.gguf").exists())
    one.wait(lambda: len(view.library.list.rows.rows) == 1)
    assert view.library_page.path == str(folder / "good.gguf")


def test_delete_can_be_taken_back(library, qtbot) -> None:
    one, view, folder = library
    click(view, folder / "good.gguf")
    qtbot.mouseClick(view.library_page.delete, Qt.MouseButton.LeftButton)
    one.wait(lambda: not (folder / "good.gguf").exists() and one.window.toast.can_undo)
    one.window.commands.update_actions()
    assert one.window.toast.isVisible()
    one.window.actions_["undo"].trigger()
    one.wait(lambda: (folder / "good.gguf").exists())
    one.wait(lambda: view.library.list.rows.index_of(str(folder / "good.gguf")).isValid())


def test_verify_shows_progress_and_the_result(library, qtbot) -> None:
    one, view, folder = library
    path = str(folder / "good.gguf")
    click(view, Path(path))
    seen: list[int] = []
    one.window.models.desk.progress.connect(lambda event: seen.append(event.bytes_done))
    qtbot.mouseClick(view.library_page.verify, Qt.MouseButton.LeftButton)
    assert view.library_page.progress.isVisible() and view.library_page.verify.text() == "Stop checking"
    one.wait(lambda: path not in one.window.models.desk.checking)
    one.wait(lambda: (one.window.models.desk.find(path) or 1).sha256 is not None)
    assert seen and not view.library_page.progress.isVisible()
    assert one.window.models.desk.find(path).sha256[:16] in " ".join(v.text() for _, v in view.library_page._rows)


def test_a_file_that_comes_from_elsewhere_is_noticed(library, starter_model: Path) -> None:
    one, view, folder = library
    shutil.copy(starter_model, folder / "third.gguf")
    one.wait(lambda: view.library.list.rows.index_of(str(folder / "third.gguf")).isValid(), 15)


def test_the_filter_keeps_to_its_words(library, qtbot) -> None:
    _, view, folder = library
    qtbot.keyClicks(view.library.filter, "good")
    assert [row.key for row in view.library.list.rows.rows] == [str(folder / "good.gguf")]
    qtbot.keyClick(view.library.filter, Qt.Key.Key_Escape)
    assert len(view.library.list.rows.rows) == 2


@pytest.mark.parametrize("copy", [False, True])
def test_a_dropped_file_is_taken_in(library, starter_model: Path, tmp_path: Path, qtbot, copy: bool) -> None:
    one, view, folder = library
    elsewhere = tmp_path / "elsewhere" / "dropped.gguf"
    elsewhere.parent.mkdir()
    shutil.copy(starter_model, elsewhere)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(elsewhere))])
    event = QDropEvent(
        QPointF(10, 10), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    view.dragEnterEvent(event)
    assert event.isAccepted()
    view.dropEvent(event)
    dialog = view.findChild(ImportDialog)
    assert dialog is not None and dialog.isVisible()
    if copy:
        dialog.copy.setChecked(True)
    qtbot.mouseClick(dialog.ok, Qt.MouseButton.LeftButton)
    wanted = folder / "dropped.gguf" if copy else elsewhere
    one.wait(lambda: view.library.list.rows.index_of(str(wanted)).isValid())
    assert view.library_page.path == str(wanted)
    assert elsewhere.exists()


def test_what_is_no_model_is_refused_in_words(library, tmp_path: Path, qtbot) -> None:
    one, view, _ = library
    page = tmp_path / "page.gguf"
    page.write_text("<!doctype html><html>login</html>")
    view.import_path(str(page))
    dialog = view.findChild(ImportDialog)
    qtbot.mouseClick(dialog.ok, Qt.MouseButton.LeftButton)
    one.wait(lambda: "page.gguf" in dialog.words.text())
    assert dialog.ok.isEnabled()
    dialog.reject()


# ---- downloads


def info(status: str, done: int = 2 * GIB, total: int = 40 * GIB, **more) -> DownloadInfo:
    return DownloadInfo("d1", "maker/Model-GGUF", "Q4_K_M", status, done, total, **more)


def test_progress_is_in_thousandths_and_sizes_are_exact() -> None:
    assert permille(info("running", 10 * GIB)) == 250
    assert permille(info("running", 1, 0)) == 0
    assert permille(info("running", 50 * GIB)) == 1000
    assert "2.0 GiB of 40.0 GiB" in status_words(info("running", speed_bps=5e6, eta_s=90.0))


@pytest.mark.parametrize("eta", [None, float("inf"), float("nan"), -1.0])
def test_the_time_left_is_a_dash_where_nobody_knows(eta: float | None) -> None:
    assert left_words(info("running", speed_bps=1e6, eta_s=eta)) == "—"
    assert left_words(info("stalled", speed_bps=1e6, eta_s=10.0)) == "—"
    assert speed_words(info("stalled", speed_bps=1e6)) == "—"


def test_strips_follow_the_events(shell, qtbot) -> None:
    one = shell()
    hub = StandInDownloads()
    view = open_models(one, hub)
    view.show_tab(DOWNLOADS)
    emit = one.app.engine._emit
    emit(DownloadChanged(download=info("running", speed_bps=14e6, eta_s=125.0)))
    one.wait(lambda: len(view.downloads_page.strips) == 1)
    strip = view.downloads_page.strips[0]
    assert strip.bar.value() == 50 and "2 min left" in strip.words.text() and view.badge.text() == "1"
    one.wait(lambda: strip.buttons["pause"].isVisible() and not strip.buttons["retry"].isVisible())
    qtbot.mouseClick(strip.buttons["pause"], Qt.MouseButton.LeftButton)
    one.wait(lambda: ("pause", "d1") in hub.asked)
    emit(DownloadChanged(download=info("stalled", error=ErrorInfo("hub_unreachable", "Nothing comes"))))
    one.wait(lambda: "—" in strip.words.text())
    error = ErrorInfo("disk_full", "There is no room for 38 GiB", "Free some space.")
    emit(DownloadChanged(download=info("failed", error=error)))
    one.wait(lambda: strip.error.text() == "There is no room for 38 GiB. Free some space.")
    qtbot.mouseClick(strip.buttons["retry"], Qt.MouseButton.LeftButton)
    one.wait(lambda: ("retry", "d1") in hub.asked)
    emit(DownloadChanged(download=info("done", 40 * GIB, paths=("/x.gguf",))))
    one.wait(lambda: strip.buttons["show"].isVisible())
    assert not view.badge.isVisible() and one.window.toast.isVisible()
    emit(DownloadChanged(download=info("failed", error=ErrorInfo("cancelled", "Cancelled"))))
    one.wait(lambda: view.downloads_page.strips == [] and view.downloads_page.empty.isVisible())


def test_the_keyboard_stays_on_a_download_whose_state_changes(shell, qtbot) -> None:
    one = shell()
    view = open_models(one, StandInDownloads())
    view.show_tab(DOWNLOADS)
    one.app.engine._emit(DownloadChanged(download=info("running")))
    one.wait(lambda: len(view.downloads_page.strips) == 1)
    strip = view.downloads_page.strips[0]
    one.window.activateWindow()
    strip.buttons["pause"].setFocus()
    one.wait(strip.buttons["pause"].hasFocus)
    one.app.engine._emit(DownloadChanged(download=info("paused")))
    one.wait(strip.buttons["resume"].hasFocus)


def test_free_space_is_shown_beside_what_is_to_come(shell) -> None:
    one = shell()
    view = open_models(one, StandInDownloads())
    view.show_tab(DOWNLOADS)
    one.app.engine._emit(DownloadChanged(download=info("running", 2 * GIB, 4000 * GIB)))
    one.wait(lambda: view.downloads_panel.need.text() == "3998.0 GiB")
    assert view.downloads_panel.need.property("role") == "bad"
    assert "GiB" in view.downloads_panel.room.text()
