"""Lists all parts of the frozen program with their licences, and writes them as a bill of materials (CycloneDX).

    PYTHONPATH=<checkout> python packaging/bill.py INTERNAL WORK SBOM SECONDS

Runs in the environment that was frozen. INTERNAL is the folder with the program's parts, WORK that of PyInstaller's
lists, SBOM the file to write, SECONDS the date in it. Nothing in the result depends on when and where it is made.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import door_frozen_parts
from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from engine import licences
from engine.licences import Part

NAMESPACE = uuid.UUID("6f6a4a0e-6d5c-5f0e-9d62-1d3f0a6d7c11")
TYPES = {
    "model": ComponentType.MACHINE_LEARNING_MODEL,
    "font": ComponentType.DATA,
    "program": ComponentType.APPLICATION,
}


def main(internal: Path, work: Path, sbom: Path, seconds: int) -> int:
    """Write the list, the texts and the bill."""
    found = [*licences.own_parts(), *packages(work), *starter_of_programs(), *system_parts(internal)]
    without = [part.name for part in found if not part.texts]
    if without:
        sys.stderr.write(f"no text of a licence was found for: {', '.join(without)}\n")
        return 1
    folder = internal / "resources" / licences.FOLDER
    kept = [with_files(part, folder) for part in found]
    (folder / "parts.json").write_text(licences.as_json(kept), encoding="utf-8")
    sbom.write_text(bill(kept, internal, seconds), encoding="utf-8")
    print(f"{len(kept)} parts")
    return 0


# ------------------------------------------------------------------ what is in it


def packages(work: Path) -> list[Part]:
    """The Python packages of which something was frozen."""
    owners = {}
    for found in metadata.distributions():
        for path in found.files or ():
            owners[str(Path(str(found.locate_file(path))).resolve())] = found
    frozen = {}
    for source in sources(work):
        owner = owners.get(str(Path(source).resolve()))
        if owner is not None:
            frozen[licences.normal(owner.metadata["Name"])] = owner
    frozen.pop("pyinstaller", None)  # named apart: of it only what starts the program is in
    frozen.pop("pyinstaller-hooks-contrib", None)
    return [licences.of_distribution(frozen[name]) for name in sorted(frozen)]


def sources(work: Path) -> Iterator[str]:
    """Files that PyInstaller took, as its own lists name them."""
    for pattern in ("PYZ-*.toc", "COLLECT-*.toc"):
        for path in sorted(work.rglob(pattern)):
            yield from _sources(ast.literal_eval(path.read_text(encoding="utf-8")))


def _sources(entry: object) -> Iterator[str]:
    if isinstance(entry, tuple) and len(entry) == 3 and all(isinstance(one, str) for one in entry):
        yield entry[1]
    elif isinstance(entry, list | tuple):
        for one in entry:
            yield from _sources(one)


def starter_of_programs() -> list[Part]:
    """What PyInstaller puts before the program."""
    return [licences.of_distribution(metadata.distribution("pyinstaller"))]


def system_parts(internal: Path) -> list[Part]:
    """The libraries that come from the machine where it was frozen, by the package that they are from."""
    if not sys.platform.startswith("linux"):
        runtime = [path.name for path in sorted(internal.glob("*")) if re.match(r"(?i)(vcruntime|msvcp)\d", path.name)]
        text = "Redistributed under the terms of the Microsoft Visual Studio licence."
        return [Part("Microsoft Visual C++ runtime", "", "system library", "", (text,))] if runtime else []
    names = [path.name for path in system_libraries(internal)]
    owners = debian_packages(names)
    found = {package: debian_part(package, version) for package, version in owners.values()}
    orphans = [Part(name, "", "system library", "") for name in names if name not in owners]
    return [*(found[package] for package in sorted(found)), *orphans]


def system_libraries(internal: Path) -> list[Path]:
    """Libraries of the system among the parts; links lead to those of packages."""
    places = (internal, internal / door_frozen_parts.FALLBACK)
    found = [path for place in places for path in sorted(place.glob("lib*.so*")) if not path.is_symlink()]
    return [path for path in found if not path.name.startswith("libpython")]


def debian_packages(libraries: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The Debian package that each library is from, with its version."""
    places: dict[str, str] = {}
    for library in libraries:
        path = door_frozen_parts.system_library(library)
        for place in (path, path.resolve()) if path else ():
            for name in (str(place), str(place).removeprefix("/usr")):  # /lib may be a link to /usr/lib
                places[name] = library
    owners: dict[str, str] = {}
    for line in _ask("dpkg-query", "-S", *sorted(places)).splitlines():
        packages, _, place = line.partition(": ")
        if place in places:
            owners[places[place]] = packages.split(",")[0].strip()
    versions = {}
    for line in _ask(
        "dpkg-query", "-W", "-f=${binary:Package}\\t${Version}\\n", *sorted(set(owners.values()))
    ).splitlines():
        package, _, version = line.partition("\t")
        versions[package.split(":")[0]] = version
    plain = {library: package.split(":")[0] for library, package in owners.items()}
    return {library: (package, versions.get(package, "")) for library, package in plain.items()}


def debian_part(package: str, version: str) -> Part:
    """A Debian package with its file of copyrights."""
    words = (Path("/usr/share/doc") / package / "copyright").read_text(encoding="utf-8", errors="replace")
    named = dict.fromkeys(re.findall(r"^License: *(\S[^\n]*)", words, re.MULTILINE))
    short = next(iter(named)) if len(named) == 1 else ""  # of more, who knows which holds for what
    return Part(package, version, "system library", short, (words, *_common_texts(words)))


def _common_texts(words: str) -> Iterator[str]:
    """The texts that a Debian file of copyrights only points to."""
    for name in sorted(set(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", words))):
        path = Path("/usr/share/common-licenses") / name
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")


def _ask(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return answer.stdout.strip()  # also where it knows only some of what was asked


# ------------------------------------------------------------------ writing it


def with_files(part: Part, folder: Path) -> Part:
    """The part with its texts as files; equal texts are one file."""
    names = []
    for text in part.texts:
        if (folder / text).is_file() if len(text) < 100 and "\n" not in text else False:
            names.append(text)
            continue
        name = f"texts/{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
        (folder / "texts").mkdir(exist_ok=True)
        (folder / name).write_text(text.strip() + "\n", encoding="utf-8")
        names.append(name)
    return Part(part.name, part.version, part.kind, part.licence, tuple(names))


def bill(found: Iterable[Part], internal: Path, seconds: int) -> str:
    """The parts as CycloneDX."""
    whole, *others = [component(part, internal) for part in found]
    made = Bom(components=others)
    made.metadata.component = whole
    made.register_dependency(whole, others)
    made.metadata.timestamp = datetime.fromtimestamp(seconds, UTC)
    names = "\n".join(f"{one.name} {one.version}" for one in [whole, *others])
    made.serial_number = uuid.uuid5(NAMESPACE, f"{names}\n{seconds}")
    return JsonV1Dot6(made).output_as_string(indent=2) + "\n"


def component(part: Part, internal: Path) -> Component:
    purl = None
    if part.kind == "Python package":
        purl = PackageURL("pypi", name=licences.normal(part.name), version=part.version)
    elif part.kind == "system library":
        purl = PackageURL("deb", "debian", part.name, part.version)
    hashes = []
    if part.kind == "model":
        model = next((internal / "share" / "inglenook" / "starter").glob("*.gguf"))
        hashes.append(HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(model.read_bytes()).hexdigest()))
    return Component(
        name=part.name,
        version=part.version or None,
        type=TYPES.get(part.kind, ComponentType.LIBRARY),
        bom_ref=f"{part.kind}/{part.name}",
        purl=purl,
        hashes=hashes,
        licenses=[LicenseFactory().make_from_string(part.licence)] if part.licence else [],
    )


if __name__ == "__main__":
    folder, lists, target, date = sys.argv[1:5]
    sys.exit(main(Path(folder), Path(lists), Path(target), int(date)))
