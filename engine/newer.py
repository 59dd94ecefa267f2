"""Files of a profile that a newer Inglenook has written: they are left as they are, and it is said in words.

Every file with a form of its own says which; a program that knows only an older one must neither misread nor
overwrite it. The database and the settings look after themselves (`store.migrations`, `settings`), and a download that
a newer program began is refused where it is listed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.paths import Paths

#: most that is read to find out; none of the files grows so large
_MOST_BYTES = 64 << 20


class _Form(msgspec.Struct):
    schema: int = 0


def is_newer(raw: bytes, known: int) -> bool:
    """Whether a JSON file says that its form is a later one than `known`."""
    try:
        return msgspec.json.decode(raw, type=_Form).schema > known
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; a damaged file is no newer one
        return False


def words(paths: Paths, known: dict[str, tuple[str, int]]) -> str:
    """One text about all of these files that are newer; "" if none is.

    Args:
        known: for each file in the data folder what it holds, and the latest form that this program knows.
    """
    found = [what for name, (what, form) in known.items() if _file_is_newer(paths.data / name, form)]
    if not found:
        return ""
    listed = " and ".join(", ".join(found).rsplit(", ", 1))
    return (
        f"A newer Inglenook has kept {listed} in this profile, in a form that this version does not know. That is left "
        "as it is and not used; update Inglenook to have it again."
    )


def _file_is_newer(path: Path, known: int) -> bool:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return False
        return is_newer(path.read_bytes(), known)
    except OSError:
        return False
