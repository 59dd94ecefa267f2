"""Rules about the tree, as functions over any folder, so that the tests can also show that each rule bites."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_CLASS_METHODS = 25
MAX_FUNCTION_LINES = 60

FOLDERS = {"desktop", "engine", "resources", "tests", "packaging"}
FILES = {
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "DECISIONS.md",
    "LICENSE",
    "README.md",
    "pyproject.toml",
}
MADE = re.compile(r"\..*|build|dist|__pycache__|.*\.egg-info")
"""Names at the top that are made by tools or start with a dot; git ignores the former."""

TEXTS = {".py", ".md", ".toml", ".txt", ".json", ".qss", ".in", ".yaml", ".yml", ".sh", ".cfg"}
# Split, so that this file does not hold what it looks for.
FOREIGN = re.compile(
    "|".join(
        [
            "/wo" + "rk/",
            "/ro" + r"ot/(?!bin)",
            r"/ho" + r"me/[a-z]",
            "/Us" + "ers/[a-z]",
            "py" + r"pi\.org",
            "files.pytho" + "nhosted",
            "deb.deb" + "ian",
            "registry.np" + "mjs",
            "(?i:main" + r"tainers-bot|issue #?\d+ of the)",
        ]
    )
)


def sources(root: Path) -> Iterator[Path]:
    """Python files that the size rules hold for."""
    for folder in ("desktop", "engine", "packaging", "resources"):
        yield from sorted((root / folder).rglob("*.py"))


def too_big(root: Path) -> list[str]:
    """Files, classes and functions over the limits, each as one line that says by how much."""
    found: list[str] = []
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            found.append(f"{name}: {lines} lines (at most {MAX_FILE_LINES})")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
                if methods > MAX_CLASS_METHODS:
                    found.append(f"{name}: class {node.name}: {methods} methods (at most {MAX_CLASS_METHODS})")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{name}: function {node.name}: {length} lines (at most {MAX_FUNCTION_LINES})")
    return found


def top_level(root: Path) -> list[str]:
    """What is at the top of the tree but should not be, or should be but is not."""
    names = {path.name for path in root.iterdir() if not MADE.fullmatch(path.name)}
    agreed = FOLDERS | FILES
    return [f"unexpected: {name}" for name in sorted(names - agreed)] + [
        f"missing: {name}" for name in sorted(agreed - names)
    ]


def foreign_words(root: Path) -> list[str]:
    """Paths of one machine and addresses of package registries in texts that everybody gets."""
    found: list[str] = []
    paths = [root / name for name in FILES] + [path for folder in FOLDERS for path in (root / folder).rglob("*")]
    for path in sorted(paths):
        if path.suffix not in TEXTS or not path.is_file() or "data" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{path.relative_to(root).as_posix()}:{number}: {line.strip()[:100]}")
    return found


def bad_pins(text: str) -> list[str]:
    """Lines of a constraints file that are not `name==version`, and names that are pinned twice."""
    lines = text.splitlines()
    found = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==\d[\w.!+]*", line)]
    names = [re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines]
    return found + sorted({f"{name}, twice" for name in names if names.count(name) > 1})


def run_time_imports(path: Path) -> set[str]:
    """Modules that a file imports when it runs: imports for type checkers alone do not count."""

    def visit(nodes: list[ast.stmt]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (item.name for item in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{item.name}" for item in node.names)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                yield from visit(node.orelse)
            else:
                for field in ("body", "orelse", "finalbody"):
                    yield from visit(getattr(node, field, []) or [])
                for handler in getattr(node, "handlers", []):
                    yield from visit(handler.body)

    return set(visit(ast.parse(path.read_text(encoding="utf-8")).body))
