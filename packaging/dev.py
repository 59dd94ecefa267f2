#!/usr/bin/env python3
"""The one door to this project: run, test, check, fix, package.

Needs only Python 3.11 or newer and, the first time, a C++ compiler and a network. This file itself is kept readable
for older Pythons so that they can say what is wrong in one line; everything else is in the `door_*.py` files beside it.
"""

import os
import shutil
import sys
from pathlib import Path

OLDEST = (3, 11)
GOOD_NAMES = ("python3.13", "python3.12", "python3.11")
MARK = "INGLENOOK_DOOR_HANDED_ON"


def newer_python():
    """Return the path of an installed Python that is new enough, or None."""
    for name in GOOD_NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


def main(argv):
    """Run one verb and return the exit status: 0 done, 1 failed, 2 wrong use or not there yet, 130 stopped."""
    if sys.version_info < OLDEST:
        found = newer_python()
        if found and MARK not in os.environ:
            environment = dict(os.environ)
            environment[MARK] = "1"
            command = [found, str(Path(__file__).resolve()), *argv]
            os.execve(found, command, environment)
        sys.stderr.write(
            "dev.py: this is Python %d.%d; install Python 3.11, 3.12 or 3.13 and start it with that\n"  # noqa: UP031
            % sys.version_info[:2]
        )
        return 1
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import door_verbs

    return door_verbs.main(argv)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
