"""Every old database opens, a newer one is refused untouched, and a failed step changes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from engine.errors import DatabaseDamaged, DatabaseTooNew, StorageFailed
from engine.message import ReasoningPart, TextPart
from engine.store import migrations
from engine.store.chats import ChatStore
from engine.store.database import Database
from engine.store.migrations import MIGRATIONS, SCHEMA, migrate, schema_of

FOSSIL = Path(__file__).parent.parent / "data" / "chats-schema1.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def test_the_first_database_ever_still_opens(path: Path) -> None:
    shutil.copy(FOSSIL, path)
    store = ChatStore(path)
    assert (store.backup is not None) == (SCHEMA > 1)
    assert store.mark_interrupted() == 1
    renamed, first = store.chats()
    assert (renamed.title, first.title) == ("Renamed by hand", "Why did my Kubernetes pod restart?")
    assert first.settings.system_prompt == "Answer briefly."
    assert first.settings.sampling is not None
    assert first.settings.sampling.stop == ("END",)
    _question, answer = store.branch(first.id)
    assert (answer.version, answer.n_versions, answer.status) == (1, 2, "complete")
    assert answer.parts == (
        ReasoningPart("Memory, perhaps.", n_tokens=4, duration_s=0.1),
        TextPart("It ran out of memory (OOMKilled)."),
    )
    assert answer.generation is not None
    assert answer.generation.sampling.seed == 2**32 - 1
    assert answer.generation.usage.prompt_tokens == 31
    other = store.siblings(answer.id)[1]
    store.set_active(first.id, other)
    assert [m.text for m in store.branch(first.id)][1:] == [
        "Its memory limit was too low.",
        "怎么修复？ Résumé naïve 😀",
    ]
    assert store.search("修复")[0].chat_id == first.id
    assert store.search("resume")[0].chat_id == first.id
    assert store.search("hidden") == []
    half = next(m for m in store.all_messages(renamed.id) if m.role == "assistant")
    assert (half.text, half.status) == ("half an answ", "interrupted")
    failed = store.restore_message(half.id + 1)
    assert failed.n_messages == 3
    error = store.message(half.id + 1).generation
    assert error is not None
    assert error.error is not None
    assert error.error.details == {"signal": 6}
    assert store.is_sound()
    store.close()


def test_messages_of_the_first_schema_are_not_pinned_and_can_be(path: Path) -> None:
    shutil.copy(FOSSIL, path)
    store = ChatStore(path)
    old = store.all_messages(store.chats()[1].id)
    assert old and not any(m.pinned for m in old)
    assert store.pin_message(old[0].id, True).pinned
    store.close()
    again = ChatStore(path)
    assert [m.pinned for m in again.all_messages(again.chats()[1].id)] == [True, *[False] * (len(old) - 1)]
    again.close()


def test_answers_of_the_second_schema_have_no_traces_and_can_get_one(path: Path) -> None:
    shutil.copy(FOSSIL.with_name("chats-schema2.db"), path)
    store = ChatStore(path)
    assert store.backup is not None and store.message(1).pinned
    assert store.traces.usage() == (0, 0)
    answer = next(m for m in store.all_messages(store.chats()[1].id) if m.role == "assistant")
    store.traces.put(answer.id, b"trace", 100)
    store.close()
    again = ChatStore(path)
    assert again.backup is None and again.traces.get(answer.id) == b"trace"
    again.close()


def test_a_fresh_database_has_the_schema_of_a_migrated_one(path: Path, tmp_path: Path) -> None:
    def shape(file: Path) -> list[tuple[str, str]]:
        connection = sqlite3.connect(file)
        rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        connection.close()
        return rows

    ChatStore(path).close()
    old = tmp_path / "old.db"
    shutil.copy(FOSSIL, old)
    ChatStore(old).close()
    assert shape(path) == shape(old)


def test_the_steps_are_numbered_and_recorded(path: Path) -> None:
    assert [m.__name__[:5] for m in MIGRATIONS] == [f"m{n:03}_" for n in range(1, SCHEMA + 1)]
    ChatStore(path).close()
    db = Database(path)
    assert schema_of(db) == SCHEMA
    names = [row[0] for row in db.rows("SELECT name FROM applied_migrations ORDER BY name")]
    assert names == [m.__name__ for m in MIGRATIONS]
    db.close()


def test_a_newer_database_is_refused_untouched(path: Path) -> None:
    shutil.copy(FOSSIL, path)
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    other.close()
    with pytest.raises(DatabaseTooNew) as caught:
        ChatStore(path)
    assert caught.value.hint
    assert caught.value.details["schema"] == SCHEMA + 1
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM chats").fetchone() == (3,)
    other.close()
    assert not migrations.backup_folder(path).exists()


def m_next(db: Database) -> None:
    db.run("ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")


def m_broken(db: Database) -> None:
    db.run("UPDATE chats SET title = 'changed'")
    db.run("CREATE TABLE half (x)")
    raise RuntimeError("oops")


def test_a_migration_is_backed_up_first_and_three_backups_are_kept(path: Path) -> None:
    shutil.copy(FOSSIL, path)
    store = ChatStore(path)
    chat = store.create_chat("only in the WAL")
    backup = migrate(store._db, [*MIGRATIONS, m_next])
    assert backup is not None
    assert store.chat(chat.id).title == "only in the WAL"
    assert schema_of(store._db) == SCHEMA + 1
    old = ChatStore(backup)
    assert old.chat(chat.id).title == "only in the WAL"
    old.close()
    steps = [*MIGRATIONS, m_next]
    for number in range(4):
        steps.append(lambda db: None)
        steps[-1].__name__ = f"m_{number}"
        migrate(store._db, steps)
    store.close()
    kept = sorted(p.name for p in migrations.backup_folder(path).iterdir())
    assert [name.rpartition("-schema")[2][:1] for name in kept] == [str(SCHEMA + n) for n in (2, 3, 4)]
    assert backup.name not in kept


def test_a_failing_step_leaves_the_old_schema(path: Path) -> None:
    shutil.copy(FOSSIL, path)
    store = ChatStore(path)
    before = store.chats()
    backups = set(migrations.backup_folder(path).glob("*.db"))
    with pytest.raises(RuntimeError):
        migrate(store._db, [*MIGRATIONS, m_next, m_broken])
    assert schema_of(store._db) == SCHEMA
    assert store.chats() == before
    assert store._db.value("SELECT count(*) FROM sqlite_master WHERE name = 'half'") == 0
    assert len(set(migrations.backup_folder(path).glob("*.db")) - backups) == 1
    store.close()


def test_no_backup_no_migration(path: Path) -> None:
    store = ChatStore(path)
    store.create_chat("kept")
    migrations.backup_folder(path).write_text("in the way")
    with pytest.raises(StorageFailed):
        migrate(store._db, [*MIGRATIONS, m_next])
    assert schema_of(store._db) == SCHEMA
    store.close()


@pytest.mark.parametrize("pragma", ["application_id = 5", "user_version = 0"])
def test_tables_that_are_not_ours_are_refused(path: Path, pragma: str) -> None:
    shutil.copy(FOSSIL, path)
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA {pragma}")
    other.close()
    with pytest.raises(DatabaseDamaged):
        ChatStore(path)
