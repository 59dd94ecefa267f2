"""`inglenook --version --check`: is there a newer version?"""

from __future__ import annotations

import sys

from engine import paths
from engine.cli_output import for_terminal
from engine.settings import Settings
from engine.updates import Updates


def run() -> int:
    """Ask and print the answer in one line.

    Raises:
        UpdateCheckFailed: it is not known.
    """
    updates = Updates(Settings(paths.resolve().settings_file))
    found = updates.check().result()
    if found.is_newer:
        day = f" ({found.released})" if found.released else ""
        text = f"Inglenook {found.latest}{day} is out: {found.page}"
    else:
        text = f"This is the newest version; {found.host} has {found.latest}."
    sys.stdout.write(for_terminal(text) + "\n")
    return 0
