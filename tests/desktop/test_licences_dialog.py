"""The licences of all parts can be read in the window."""

from __future__ import annotations

from typing import Any

import pytest

from desktop.views.settings.licences_dialog import LicencesDialog
from engine import licences


def opened(shell: Any) -> LicencesDialog:
    window = shell().window
    window.show_settings()
    window.settings_view.about.licences.click()
    return window.findChild(LicencesDialog, "licences_dialog")


def test_each_part_shows_its_licence(shell, qtbot) -> None:
    dialog = opened(shell)
    qtbot.waitUntil(lambda: "Apache License" in dialog.text.toPlainText(), timeout=20_000)
    names = [dialog.parts.item(row).text() for row in range(dialog.parts.count())]
    assert names[0].startswith("Inglenook")
    assert f"{len(names) - 1} parts" in dialog.words.text()
    dialog.parts.setCurrentRow(next(row for row, name in enumerate(names) if name.startswith("Qt ")))
    qtbot.waitUntil(lambda: "LESSER GENERAL PUBLIC" in dialog.text.toPlainText(), timeout=20_000)
    assert "LGPL-3.0-only" in dialog.about.text()
    dialog.close()


def test_a_damaged_list_is_said(shell, qtbot, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> list[licences.Part]:
        raise ValueError("no list")

    monkeypatch.setattr(licences, "parts", damaged)
    dialog = opened(shell)
    qtbot.waitUntil(lambda: "cannot be read" in dialog.words.text(), timeout=10_000)
    dialog.close()
