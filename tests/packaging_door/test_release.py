"""The workflows hold what a release needs, and the parts of all systems are put together without a mistake."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import door_linux
import door_macos
import door_package
import door_steps
import door_windows
import gather_release
import pytest
import yaml

from engine import __version__
from engine.updates import read_answer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
NAMES = ("ci.yml", "release.yml")
PAGE = "https://github.com/owner/inglenook/releases/tag/v0"


def load(name: str) -> dict[Any, Any]:
    found = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in load(name)["jobs"].values() for step in job["steps"]]


def text_of(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


# ------------------------------------------------------------------ the workflows


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_githubs_own_and_pinned_to_a_commit(name: str) -> None:
    uses = [step["uses"] for step in steps(name) if "uses" in step]
    assert uses
    for use in uses:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", use), use
    for line in text_of(name).splitlines():
        if "uses:" in line:
            assert re.search(r"# v\d+\.\d+\.\d+$", line), f"{line.strip()} does not say which version that is"


def test_one_action_has_one_version() -> None:
    pins: dict[str, set[str]] = {}
    for name in NAMES:
        for use, version in re.findall(r"uses: (\S+) # (\S+)", text_of(name)):
            pins.setdefault(use.split("@")[0], set()).add(f"{use} {version}")
    assert all(len(found) == 1 for found in pins.values()), pins


@pytest.mark.parametrize("name", NAMES)
def test_no_job_may_do_more_than_it_needs(name: str) -> None:
    flow = load(name)
    assert flow["permissions"] == {}
    for title, job in flow["jobs"].items():
        allowed = {"contents": "read"}
        if title == "draft":
            allowed = {"contents": "write", "id-token": "write", "attestations": "write"}
        assert job["permissions"] == allowed, title
        assert job["timeout-minutes"] <= 240
        for step in job["steps"]:
            if str(step.get("uses", "")).startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    # the token is in one step only, and what others write (a title, a branch) never becomes a command
    tokens = [step for step in steps(name) if "github.token" in json.dumps(step)]
    assert len(tokens) == (1 if name == "release.yml" else 0)
    for step in steps(name):
        assert "${{" not in str(step.get("run", "")), step


def test_secrets_are_for_the_certificate_alone_and_never_for_strangers() -> None:
    assert "secrets." not in text_of("ci.yml")
    assert "pull_request" not in load("release.yml")[True]  # YAML 1.1 reads "on" as true
    assert "pull_request_target" not in text_of("ci.yml")
    holders = [step["name"] for step in steps("release.yml") if "secrets." in json.dumps(step)]
    assert holders == ["Certificate"]


def test_the_matrix_has_every_system_that_packages_are_made_for() -> None:
    rows = load("release.yml")["jobs"]["package"]["strategy"]["matrix"]["include"]
    names = {row["name"] for row in rows}
    assert names == {"linux-x64", "linux-arm64", "windows-x64", "macos-arm64", "macos-x64"}
    assert {name.split("-")[0] for name in names} == set(door_package.SYSTEMS.values())
    for row in rows:
        assert row["runner"].startswith(
            {"linux": "ubuntu-", "windows": "windows-", "macos": "macos-"}[row["name"].split("-")[0]]
        )
        assert not row["runner"].endswith("-latest"), "another system one day would be another release"
    for system, module in {"linux": door_linux, "windows": door_windows, "macos": door_macos}.items():
        build = door_package.step(f"door_{system}", "build")
        assert build is module.build
        assert list(inspect.signature(build).parameters)[:4] == ["place", "frozen", "addons", "only"]


def test_packages_are_made_by_the_door_and_tried_where_they_were_installed() -> None:
    runs = [str(step.get("run", "")) for step in load("release.yml")["jobs"]["package"]["steps"]]
    assert "python packaging/dev.py package" in runs
    tried = [run for run in runs if "--self-test" in run]
    assert len(tried) == 3
    assert "/usr/bin/inglenook --self-test" in tried[0]
    assert "inglenook-cli.exe" in tried[1] and "inglenook-cli.exe" in door_windows.PROGRAMS
    assert "Inglenook.app/Contents/MacOS/inglenook" in tried[2]
    assert load("ci.yml")["jobs"]["test"]["steps"][-2]["run"] == "python packaging/dev.py check"
    assert load("ci.yml")["jobs"]["test"]["steps"][-1]["run"] == "python packaging/dev.py test"


def test_a_release_is_a_draft_with_sums_bills_and_provenance() -> None:
    job = load("release.yml")["jobs"]["draft"]
    words = json.dumps(job)
    assert "--draft" in words and "--verify-tag" in words
    assert "actions/attest-build-provenance@" in words
    assert "gather_release.py parts release" in words
    order = [step.get("name", step.get("uses", "")) for step in job["steps"]]
    assert order.index("Provenance") < order.index("Draft")
    assert job["needs"] == ["package", "cuda"]


def test_the_feed_that_is_built_in_may_be_asked() -> None:
    """Its page is at the same host, and where it is written the program reads it."""
    feed = load("release.yml")["env"]["FEED"].replace("${{ github.repository }}", "owner/inglenook")
    raw = json.dumps({"version": "9.9.9", "page": PAGE}).encode()
    assert read_answer(raw, feed, "0.1.0").is_newer
    assert "resources/updates/feed.txt" in text_of("release.yml")
    assert feed.endswith(gather_release.FEED)


def test_python_of_the_packages_is_one_that_was_tried() -> None:
    from door_verbs import NEWEST_TRIED

    asked = [
        step["with"]["python-version"] for step in steps("release.yml") if "python-version" in step.get("with", {})
    ]
    assert asked == [f"{NEWEST_TRIED[0]}.{NEWEST_TRIED[1]}"]


@pytest.mark.parametrize("name", NAMES)
def test_shell_parts_are_sound(name: str) -> None:
    for step in steps(name):
        if "run" in step and step.get("shell") != "pwsh":
            done = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True, check=False)
            assert done.returncode == 0, f"{step.get('name')}: {done.stderr}"


# ------------------------------------------------------------------ putting together


def part(parts: Path, system: str, files: dict[str, bytes]) -> Path:
    folder = parts / f"packages-{system}"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    paths = [folder / name for name in files]
    door_package.write_sums(folder, paths)
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "parts"
    part(folder, "linux-x64", {"inglenook_1_amd64.deb": b"deb", "inglenook.cdx.json": b"{1}"})
    part(folder, "windows-x64", {"inglenook-1-windows-x64.exe": b"MZ", "inglenook.cdx.json": b"{2}"})
    (folder / "packages-cuda").mkdir()
    (folder / "packages-cuda" / "inglenook-cuda_1_amd64.deb").write_bytes(b"cuda")
    return folder


def test_all_parts_become_one_release(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796083200")
    release = tmp_path / "release"
    tag = f"v{__version__}"
    assert gather_release.main([str(parts), str(release), "--tag", tag, "--page", PAGE]) == 0
    assert {path.name for path in release.iterdir()} == {
        "SHA256SUMS",
        f"inglenook-{__version__}-linux-x64.cdx.json",
        f"inglenook-{__version__}-windows-x64.cdx.json",
        "inglenook-1-windows-x64.exe",
        "inglenook-cuda_1_amd64.deb",
        "inglenook_1_amd64.deb",
        "latest.json",
    }
    sums = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    assert sums["latest.json"] == hashlib.sha256((release / "latest.json").read_bytes()).hexdigest()
    found = read_answer((release / "latest.json").read_bytes(), "https://github.com/x/latest.json", "0.0.1")
    assert (found.latest, found.page, found.released) == (__version__, PAGE, "2026-12-01")


@pytest.mark.parametrize(
    ("tag", "page", "words"),
    [
        ("v99.0.0", PAGE, "is not that of this version"),
        (f"v{__version__}", "http://github.com/x", "no https address"),
    ],
)
def test_a_wrong_tag_or_page_stops_it(
    parts: Path, tmp_path: Path, tag: str, page: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gather_release.main([str(parts), str(tmp_path / "release"), "--tag", tag, "--page", page]) == 1
    assert words in capsys.readouterr().err


def test_files_that_changed_on_the_way_stop_it(parts: Path, tmp_path: Path) -> None:
    deb = parts / "packages-linux-x64" / "inglenook_1_amd64.deb"
    deb.write_bytes(b"another")
    with pytest.raises(door_steps.StepError, match="is not the file that was made"):
        gather_release.gather(parts, tmp_path / "a", "1")
    deb.write_bytes(b"deb")
    (parts / "packages-linux-x64" / "stranger.exe").write_bytes(b"")
    with pytest.raises(door_steps.StepError, match=r"do not agree \(stranger\.exe\)"):
        gather_release.gather(parts, tmp_path / "b", "1")
    (parts / "packages-linux-x64" / "stranger.exe").unlink()
    deb.unlink()
    with pytest.raises(door_steps.StepError, match="do not agree"):
        gather_release.gather(parts, tmp_path / "c", "1")
    (parts / "packages-linux-x64" / "SHA256SUMS").write_text("../../x\n")
    with pytest.raises(door_steps.StepError, match="a line that is none"):
        gather_release.gather(parts, tmp_path / "d", "1")


def test_two_files_of_one_name_and_no_packages_at_all(parts: Path, tmp_path: Path) -> None:
    part(parts, "linux-arm64", {"inglenook_1_amd64.deb": b"built for the wrong processor"})
    with pytest.raises(door_steps.StepError, match="two systems have made"):
        gather_release.gather(parts, tmp_path / "a", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(door_steps.StepError, match="holds no packages"):
        gather_release.gather(tmp_path / "empty", tmp_path / "b", "1")


# ------------------------------------------------------------------ the certificate


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_keychain_gets_nothing_without_a_certificate(tmp_path: Path) -> None:
    script = ROOT / "packaging" / "macos" / "keychain.sh"
    env = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path)}
    done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_certificate_goes_into_a_keychain_and_nothing_secret_is_printed(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "security").write_text(
        '#!/bin/sh\necho "security $1"\n'
        '[ "$1" = find-identity ] && echo \'  1) ABCDEF "Developer ID Application: Somebody (AB12)"\'\nexit 0\n'
    )
    (tools / "xcrun").write_text("#!/bin/sh\necho stored\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    env = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "MAC_CERTIFICATE": "c2VjcmV0",
        "MAC_CERTIFICATE_PASSWORD": "hunter2",
        "MAC_NOTARY_KEY": "-----KEY-----",
        "MAC_NOTARY_KEY_ID": "K1",
        "MAC_NOTARY_ISSUER": "I1",
    }
    script = ROOT / "packaging" / "macos" / "keychain.sh"
    done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "INGLENOOK_MAC_IDENTITY=Developer ID Application: Somebody (AB12)",
        "INGLENOOK_NOTARY_PROFILE=inglenook",
    ]
    assert "hunter2" not in done.stdout + done.stderr


# ------------------------------------------------------------------ the documents


def test_the_readme_names_the_folders_that_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from platformdirs import macos, unix

    from engine.paths import APP

    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    text = (ROOT / "README.md").read_text("utf-8")
    for dirs in (unix.Unix(APP, appauthor=False), macos.MacOS(APP, appauthor=False)):
        for folder in (dirs.user_data_dir, dirs.user_config_dir, dirs.user_cache_dir, dirs.user_log_dir):
            shown = folder.replace(str(tmp_path), "~").removesuffix("/log")
            assert f"`{shown}`" in text, shown
    assert "`%LOCALAPPDATA%\\inglenook`" in text


def test_what_is_said_of_a_release_agrees_with_what_makes_it() -> None:
    import door_cuda

    text = (ROOT / "packaging" / "release.md").read_text("utf-8")
    for name in re.findall(r"`(door_\w+\.py|\w+/(?:sign|notarize)\.sh|gather_release\.py)`", text):
        assert (ROOT / "packaging" / name).is_file(), name
    for use, version in re.findall(r"actions/([a-z-]+)@\S+ # (v\S+)", text_of("release.yml")):
        assert f"{use} {version}" in text, use
    for arch in door_cuda.RELEASE_ARCHITECTURES:
        assert arch in text, arch
    for name in re.findall(r"(?:secrets|vars)\.([A-Z_]+)", text_of("release.yml")):
        assert f"`{name}`" in text, name
    for name in (door_windows.SIGN, door_macos.NOTARY, "INGLENOOK_MAC_IDENTITY", door_cuda.VARIABLE):
        assert f"`{name}`" in text, name
