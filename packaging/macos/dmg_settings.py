"""The disk image, for dmgbuild: the application and a link to the folder it is dragged to. Given with -D: app, icon."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

defines: dict[str, Any] = globals().get("defines", {})

_app = defines["app"]
_name = PurePosixPath(_app).name

format = "ULFO"
filesystem = "APFS"
files = [_app]
symlinks = {"Applications": "/Applications"}
icon = defines["icon"]
hide_extensions = [_name]
icon_locations = {_name: (150, 160), "Applications": (410, 160)}
window_rect = ((200, 200), (560, 360))
default_view = "icon-view"
show_icon_preview = False
icon_size = 112
text_size = 13
