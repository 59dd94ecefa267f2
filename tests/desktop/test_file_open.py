"""What macOS hands over as events: kept until the window is there, then opened as a second start's words are."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QCoreApplication, QUrl
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication

from desktop.file_open import FileOpens

LINK = "inglenook://models/owner/name?quant=Q4_K_M"


def test_files_and_links_are_kept_until_the_window_is_there(qapp: QApplication, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    path = str(tmp_path / "ein Modell ü.gguf")
    handed = FileOpens(qapp)
    handed.opened.connect(seen.append)
    QCoreApplication.sendEvent(qapp, QFileOpenEvent(path))
    QCoreApplication.sendEvent(qapp, QFileOpenEvent(QUrl(LINK)))
    assert seen == []
    handed.release()
    assert seen == [[path, LINK]]
    QCoreApplication.sendEvent(qapp, QFileOpenEvent(path))
    assert seen == [[path, LINK], [path]]
    handed.release()
    assert len(seen) == 2
    qapp.removeEventFilter(handed)


def test_a_file_that_is_handed_over_is_loaded(shell, qapp: QApplication, model_file: Path) -> None:
    running = shell()
    handed = FileOpens(qapp)
    handed.opened.connect(running.app.on_second_start)
    handed.release()
    QCoreApplication.sendEvent(qapp, QFileOpenEvent(str(model_file)))
    running.wait(lambda: running.window.control.state.status == "ready")
    assert running.window.control.state.path == str(model_file)
    qapp.removeEventFilter(handed)
