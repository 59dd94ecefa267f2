"""`inglenook doctor` and `--self-test` on this machine."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import run

from engine import paths as places
from engine.cli_doctor import database_state
from engine.store.migrations import SCHEMA


def test_doctor_as_json(home: Path, starter_model: Path) -> None:
    done = run("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert set(report) == {"versions", "llama_cpp", "hardware", "paths", "starter", "database"}
    assert report["llama_cpp"]["ok"] is True
    assert "CPU" in report["llama_cpp"]["backends"]
    assert any(device["kind"] == "cpu" for device in report["llama_cpp"]["devices"])
    assert report["versions"]["llama_cpp_python"]
    assert report["hardware"]["cpu"]["physical_cores"] >= 1
    assert report["hardware"]["ram"]["total_bytes"] > 2**28
    assert report["hardware"]["gpus"]["text"]
    assert report["paths"]["home"] == str(home)
    assert report["starter"]["path"] == str(starter_model)
    assert report["database"]["state"] == "none"
    assert list(home.iterdir()) == [], "looking changes nothing"


def test_doctor_in_words(home: Path) -> None:
    done = run("doctor")
    assert done.returncode == 0
    for word in ("llama.cpp", "Processor", "Memory", "NVIDIA", "Starter model", "Database", str(home)):
        assert word in done.stdout


def test_doctor_without_a_usable_llama_cpp(tmp_path: Path) -> None:
    package = tmp_path / "broken" / "llama_cpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('libllama.so: cannot open shared object file')\n")
    done = run("doctor", "--json", env={"PYTHONPATH": f"{package.parent}:{Path.cwd()}"})
    report = json.loads(done.stdout)
    if report["llama_cpp"]["ok"]:
        pytest.skip("this worker finds its library another way")
    assert done.returncode == 13
    assert report["llama_cpp"]["error"]["code"] == "backend_missing"
    words = run("doctor", env={"PYTHONPATH": f"{package.parent}:{Path.cwd()}"})
    assert "cannot be used" in words.stdout
    assert "Processor" in words.stdout


def database(path: Path, schema: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE chats (id INTEGER, deleted_s REAL)")
    connection.execute("INSERT INTO chats VALUES (1, NULL), (2, 5.0)")
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.commit()
    connection.close()


def test_states_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "山 %20 #?.db"
    assert database_state(path)["state"] == "none"
    database(path, SCHEMA)
    before = path.read_bytes()
    assert database_state(path) == {"state": "ok", "text": "1 chats", "schema": SCHEMA, "chats": 1}
    assert path.read_bytes() == before
    for schema, state in ((0, "old"), (SCHEMA + 1, "too_new")):
        path.unlink()
        database(path, schema)
        assert database_state(path)["state"] == state
    path.write_bytes(b"this is no database" * 500)
    assert database_state(path)["state"] == "damaged"
    path.unlink()
    path.mkdir()
    assert database_state(path)["state"] == "unreadable"
    assert database_state(tmp_path / ("x" * 5000) / "chats.db")["state"] == "unreadable"


def test_the_real_database_is_understood(home: Path) -> None:
    from engine.store.chats import ChatStore

    paths = places.resolve(home).ensure()
    store = ChatStore(paths.database)
    store.create_chat("A chat")
    state = database_state(paths.database)  # while it is open elsewhere
    store.close()
    assert (state["state"], state["chats"]) == ("ok", 1)
    assert database_state(paths.database)["chats"] == 1


def test_self_test(home: Path) -> None:
    done = run("--self-test")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in (
        "llama.cpp",
        "computes on CPU",
        "device",
        "loaded",
        "layers on CPU",
        "wrote 8 tokens",
        "window opened",
    ):
        assert word in done.stdout
    assert "failed" not in done.stdout
    assert done.stdout.endswith("all of it works\n")


def test_self_test_without_the_starter(tmp_path: Path, starter_model: Path) -> None:
    damaged = tmp_path / "starter.gguf"
    shutil.copyfile(starter_model, damaged)
    with damaged.open("r+b") as file:
        file.truncate(1_000_000)
    done = run("--self-test", env={"INGLENOOK_STARTER": str(damaged)})
    assert done.returncode == 5
    assert "damaged" in done.stderr or "cut short" in done.stderr
    assert "failed" in done.stdout
    assert "ok  window opened" in done.stdout, "what comes after a failure is tried too"


def test_self_test_without_a_usable_llama_cpp(tmp_path: Path) -> None:
    package = tmp_path / "broken" / "llama_cpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "llama_cpp.py").write_text("raise OSError('libllama.so: cannot open shared object file')\n")
    done = run("--self-test", env={"PYTHONPATH": f"{package.parent}:{Path.cwd()}", "PYTHONSAFEPATH": "1"})
    assert done.returncode == 13, done.stdout + done.stderr
    assert "failed  llama.cpp cannot be loaded" in done.stdout
    assert "libllama.so: cannot open shared object file" in done.stdout, "the reason is said"
    assert "Traceback" not in done.stdout + done.stderr


def test_self_test_without_a_place_for_temporary_files(home: Path) -> None:
    nowhere = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "/nonexistent")
    script = "import sys, tempfile; tempfile._candidate_tempdir_list = lambda: ['/nonexistent']\n"
    script += "from engine.cli import main; sys.exit(main(['--self-test']))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **nowhere}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "failed  There is no folder for temporary files" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
