"""Threads for a model, on processors made of files and bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine import cores
from engine.cores import Cores, LogicalCpu, count, from_levels, from_sysfs, from_windows, numbers_in


def sysfs(root: Path, core_of: list[int], **more: str) -> Path:
    """A /sys/devices with these processors; `more` are files by path, "/" written as "__"."""
    for number, core in enumerate(core_of):
        folder = root / f"system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "core_id").write_text(f"{core}\n")
        (folder / "physical_package_id").write_text("0\n")
    for name, text in more.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    cpus = from_sysfs(sysfs(tmp_path, [0, 1, 2, 3, 0, 1, 2, 3]))
    assert count(cpus) == Cores(4, 4, 4, "physical cores")
    # what the process may not use does not count, and half a core is a core
    assert count(cpus, {0, 4, 5}) == Cores(2, 2, 2, "physical cores")


def test_the_fast_cores_of_an_intel_hybrid(tmp_path: Path) -> None:
    core_of = [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7]  # 4 fast ones with two threads each, 4 small ones
    cpus = from_sysfs(sysfs(tmp_path, core_of, cpu_core__cpus="0-7", cpu_atom__cpus="8-11"))
    assert count(cpus) == Cores(4, 8, 4, "performance cores of 8")
    assert count(cpus, {6, 7, 8, 9}) == Cores(1, 3, 1, "performance cores of 3")
    assert count(cpus, {8, 9}) == Cores(2, 2, 2, "physical cores"), "only small ones: all of them"


def test_fast_cores_by_the_kernels_capacities(tmp_path: Path) -> None:
    sizes = {f"system__cpu__cpu{n}__cpu_capacity": text for n, text in enumerate(["325"] * 4 + ["871"] * 3 + ["1024"])}
    assert count(from_sysfs(sysfs(tmp_path, list(range(8)), **sizes))) == Cores(4, 8, 4, "performance cores of 8")


def test_fast_cores_by_their_clocks(tmp_path: Path) -> None:
    clocks = ["5100000", "5100000", "5000000", "5000000", "3300000", "3300000"]
    named = {f"system__cpu__cpu{n}__cpufreq__cpuinfo_max_freq": text for n, text in enumerate(clocks)}
    assert count(from_sysfs(sysfs(tmp_path, list(range(6)), **named))).threads == 4


def test_favoured_cores_are_no_other_kind(tmp_path: Path) -> None:
    clocks = ["5700000", "5600000", "5500000", "5450000"]
    named = {f"system__cpu__cpu{n}__cpufreq__cpuinfo_max_freq": text for n, text in enumerate(clocks)}
    assert count(from_sysfs(sysfs(tmp_path, [0, 1, 2, 3], **named))) == Cores(4, 4, 4, "physical cores")


def test_a_clock_that_is_not_known_for_all_says_nothing(tmp_path: Path) -> None:
    named = {"system__cpu__cpu0__cpufreq__cpuinfo_max_freq": "5000000", "cpu_core__cpus": "not a list"}
    assert count(from_sysfs(sysfs(tmp_path, [0, 1], **named))).threads == 2


def test_processors_that_are_off_do_not_count(tmp_path: Path) -> None:
    cpus = from_sysfs(sysfs(tmp_path, [0, 1, 2, 3], system__cpu__online="0-1", system__cpu__cpu1__topology__core_id=""))
    assert [cpu.number for cpu in cpus] == [0]


def test_two_packages_are_not_one(tmp_path: Path) -> None:
    root = sysfs(tmp_path, [0, 1, 0, 1])
    for number in (2, 3):
        (root / f"system/cpu/cpu{number}/topology/physical_package_id").write_text("1\n")
    assert count(from_sysfs(root)).threads == 4


@pytest.mark.parametrize(("share", "threads"), [(0.0, 4), (8.0, 4), (2.5, 2), (0.5, 1)])
def test_the_share_of_a_container(share: float, threads: int) -> None:
    found = count([LogicalCpu(n, (n,)) for n in range(4)], None, share)
    assert found.threads == threads
    assert (found.reason == "physical cores") == (threads == 4)


def test_nothing_known_is_one_thread(tmp_path: Path) -> None:
    assert count(from_sysfs(tmp_path)).threads == 1
    assert count([LogicalCpu(0, (0,))], {77}).threads == 1, "an affinity that fits nothing is not believed"


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("", set()), ("x,-2,5-", {5}), ("3-1", set()), (" 1 , 2 ", {1, 2})],
)
def test_lists_of_the_kernel(text: str, found: set[int]) -> None:
    assert numbers_in(text) == found


def test_apples_levels() -> None:
    assert count(from_levels([(8, 8), (2, 2)])) == Cores(8, 10, 8, "performance cores of 10")
    assert count(from_levels([(4, 8)])) == Cores(4, 4, 4, "physical cores")
    assert count(from_levels([(0, 0)])).threads == 1


def core_record(speed: int, *masks: tuple[int, int]) -> bytes:
    body = struct.pack("<BB20xH", int(len(masks) > 1), speed, len(masks))
    body += b"".join(struct.pack("<QH6x", mask, group) for mask, group in masks)
    return struct.pack("<II", 0, 8 + len(body)) + body


def test_windows_records() -> None:
    other = struct.pack("<II", 2, 16) + bytes(8)  # a cache
    records = other + core_record(1, (0b11, 0)) + core_record(1, (0b1100, 0)) + core_record(0, (1 << 4, 0))
    assert count(from_windows(records)) == Cores(2, 3, 2, "performance cores of 3")
    assert count(from_windows(records), {2, 4}).threads == 1
    alike = core_record(0, (1, 0)) + core_record(0, (1, 1))
    assert [cpu.number for cpu in from_windows(alike)] == [0, 64]
    assert count(from_windows(alike)).threads == 2
    assert from_windows(b"") == []
    assert from_windows(struct.pack("<II", 0, 0) * 4) == [], "a record without a size ends it"


def test_this_computer() -> None:
    found = cores.here()
    assert 1 <= found.threads <= found.fast <= found.physical
    assert found.reason


def test_a_computer_that_says_nothing_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(root: Path) -> list[LogicalCpu]:
        raise OSError("no such thing")

    monkeypatch.setattr(cores, "_cpus", fails)
    assert cores.here(tmp_path).threads >= 1
