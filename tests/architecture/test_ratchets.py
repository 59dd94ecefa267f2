"""Sizes, layout and texts of the tree, and a proof for each rule that it fails when it is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
import ratchets

ROOT = Path(__file__).resolve().parents[2]


def test_files_classes_and_functions_stay_small() -> None:
    assert ratchets.too_big(ROOT) == []


def test_the_top_level_is_the_agreed_one() -> None:
    assert ratchets.top_level(ROOT) == []


def test_packaging_is_no_package() -> None:
    # With an __init__.py it would hide the `packaging` that pytest, build and PyInstaller import.
    assert not (ROOT / "packaging" / "__init__.py").exists()


def test_no_paths_of_one_machine_and_no_registry_addresses() -> None:
    assert ratchets.foreign_words(ROOT) == []


def test_constraints_hold_exact_versions_only() -> None:
    assert ratchets.bad_pins((ROOT / "packaging" / "constraints.txt").read_text(encoding="utf-8")) == []


def test_documents_are_there() -> None:
    assert [name for name in sorted(ratchets.FILES) if not (ROOT / name).read_text(encoding="utf-8").strip()] == []
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_front_end_takes_records_of_the_store_as_types_only() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "desktop").rglob("*.py"))
        if any(name == "engine.store" or name.startswith("engine.store.") for name in ratchets.run_time_imports(path))
    ]
    assert users == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree that keeps every rule."""
    root = tmp_path / "tree"
    root.mkdir()
    for name in ratchets.FOLDERS:
        (root / name).mkdir()
    for name in ratchets.FILES:
        (root / name).write_text("text\n")
    (root / ".venv").mkdir()
    assert ratchets.too_big(root) == ratchets.top_level(root) == ratchets.foreign_words(root) == []
    return root


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n" * 401, "401 lines"),
        ("class A:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(26)), "26 methods"),
        ("def f():\n" + "    x = 1\n" * 60, "61 lines"),
        ("class A:\n    async def f(self):\n" + "        x = 1\n" * 60, "61 lines"),
    ],
)
@pytest.mark.parametrize("folder", ["desktop", "engine", "packaging"])
def test_too_big_is_seen(tree: Path, folder: str, text: str, says: str) -> None:
    (tree / folder / "big.py").write_text(text)
    assert [line for line in ratchets.too_big(tree) if says in line and line.startswith(f"{folder}/big.py")]


def test_what_just_fits_is_left_alone(tree: Path) -> None:
    (tree / "engine" / "fits.py").write_text("def f():\n" + "    x = 1\n" * 59 + "y = 1\n" * 340)
    assert ratchets.too_big(tree) == []


def test_a_new_name_at_the_top_is_seen(tree: Path) -> None:
    (tree / "utils").mkdir()
    (tree / "DECISIONS.md").unlink()
    assert ratchets.top_level(tree) == ["unexpected: utils", "missing: DECISIONS.md"]


@pytest.mark.parametrize("words", ["/ho" + "me/ann/x", "/wo" + "rk/main", "https://py" + "pi.org/simple"])
def test_a_foreign_word_is_seen(tree: Path, words: str) -> None:
    (tree / "engine" / "where.py").write_text(f"# see {words}\n")
    assert len(ratchets.foreign_words(tree)) == 1


@pytest.mark.parametrize(
    "line", ["numpy", "numpy>=2", "numpy==2.*", "-i x", "# no", "", "numpy==2.0 ; python_version > '3'"]
)
def test_a_line_that_pins_nothing_is_seen(line: str) -> None:
    assert ratchets.bad_pins(f"gguf==0.19.0\n{line}\n") == [line]
    assert ratchets.bad_pins("a_b==1.0\nA-b==2.0\n") == ["a-b, twice"]


def test_imports_for_type_checkers_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "import a\nif TYPE_CHECKING:\n    import b\ntry:\n    from c import d\nexcept ImportError:\n    import e\n"
        "def f():\n    import g\n"
    )
    assert ratchets.run_time_imports(path) == {"a", "c", "c.d", "e", "g"}
