"""Draw the program's icon in the sizes that packages carry: `.venv/bin/python packaging/render_icons.py`.

Needs the environment of `dev.py` (Qt draws it). The pictures are kept in the repository, so that packages can be made
without it, and so that two builds carry the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "resources" / "icons" / "inglenook.svg"
FOLDER = ROOT / "packaging" / "linux" / "icons"
SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)


def main() -> int:
    """Draw all sizes; returns the exit status."""
    app = QGuiApplication(["render_icons", "-platform", "offscreen"])
    drawing = QSvgRenderer(str(SOURCE))
    if not drawing.isValid():
        print(f"{SOURCE} cannot be drawn", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        image = QImage(size, size, QImage.Format.Format_ARGB32)
        image.fill(Qt.GlobalColor.transparent)
        painter = QPainter(image)
        drawing.render(painter)
        painter.end()
        image.save(str(FOLDER / f"inglenook-{size}.png"), "PNG")  # type: ignore[call-overload]
    del app
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
