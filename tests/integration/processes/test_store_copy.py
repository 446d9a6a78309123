"""A mesh moves between a data directory and a database, and goes on where it was."""

import sqlite3
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from harness.agents.inline_agents import texts
from harness.journal.builders import completed, created, group, row, stored, working
from harness.journal.full_folder import CONTENT, CONVERSATION, STATE, make_full_folder
from harness.journal.opening import open_journal
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import COMMAND, CompletedCommand, run_command
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.core.identity import Identity, JoinRecords
from trunkline.core.identity.tokens import TokenUse
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.postgres.small_files import PostgresFiles
from trunkline.core.settings import MessagingSettings
from trunkline.core.small_files import FolderFiles
from trunkline.errors import CursorExpiredError, UnauthenticatedError
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.sqlite import SqliteCatalog
from trunkline.journal.store import SubmissionKey
from trunkline.messages.postgres_store import PostgresMessageStore
from trunkline.processes.stored_tables import list_tables, migrate
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.tools.used_approvals import PostgresUsedApprovals

TESTS = Path(__file__).parents[2]
LEASE_S = 2.0
ADD_AUDIT_RECORD = "INSERT INTO trunkline_audit VALUES (1, 'writer', 1, now(), 'x')"
SERVE = (*COMMAND, "serve", "agents", "--agent", "harness.agents.teller:teller")


async def run(*words: str, store: str = "") -> CompletedCommand:
    if store:
        return await run_command("data", *words, TRUNKLINE_STORE=store)
    return await run_command("data", *words)


async def stop(agent: KillableAgent) -> None:
    assert agent.process is not None
    agent.process.terminate()
    await agent.process.wait()


async def end_of(mesh: SmallMesh, task_id: str) -> str:
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    return "".join(texts(ended))


async def test_a_mesh_moves_to_a_database_and_back_with_running_and_ended_tasks(
    tmp_path: Path,
) -> None:
    began = tmp_path / "began"
    async with (
        new_database() as url,
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        variables = {
            "TELLER_FOLDER": str(tmp_path),
            "TRUNKLINE_LEASE_S": str(LEASE_S),
            "TRUNKLINE_DRAIN_GRACE_S": "1",
        }
        in_files, in_database, back = (
            KillableAgent(mesh, "teller", SERVE, tmp_path / name, stack, TESTS, environment)
            for name, environment in (
                ("files", variables),
                ("machine", {**variables, "TRUNKLINE_STORE": url}),
                ("back", variables),
            )
        )
        await in_files.start()
        began.touch()
        ended = (await mesh.ask("same", agent="teller")).task.id
        began.unlink()
        first = await mesh.begin("same", agent="teller")
        await mesh.until(first, lambda now: "".join(texts(now)) == "once upon ")
        refused = await run("copy", str(tmp_path / "files"), url)
        assert "has it open; stop it" in refused.err
        await stop(in_files)

        moved = await run("copy", str(tmp_path / "files"), url)
        assert moved.out.splitlines()[0].startswith("1 journals, ")
        assert "2 tasks" in moved.out.splitlines()
        await in_database.start()
        assert await end_of(mesh, first) == "once upon a time"
        assert await end_of(mesh, ended) == "once upon a time"
        began.unlink()
        second = await mesh.begin("same", agent="teller")
        await mesh.until(second, lambda now: "".join(texts(now)) == "once upon ")
        await stop(in_database)

        returned = await run("copy", url, str(tmp_path / "back"))
        assert "3 tasks" in returned.out.splitlines()
        await back.start()
        assert await end_of(mesh, second) == "once upon a time"
        for task_id in (first, ended):
            assert await end_of(mesh, task_id) == "once upon a time"


async def test_a_database_is_copied_after_its_mesh_was_killed_and_not_before(
    tmp_path: Path,
) -> None:
    async with (
        new_database() as url,
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        variables = {
            "TELLER_FOLDER": str(tmp_path),
            "TRUNKLINE_LEASE_S": str(LEASE_S),
            "TRUNKLINE_STORE": url,
        }
        folder = tmp_path / "machine"
        agent = KillableAgent(mesh, "teller", SERVE, folder, stack, TESTS, variables)
        await agent.start()
        refused = await run("copy", url, str(tmp_path / "refused"))
        assert "is in use by " in refused.err
        assert "stop the mesh first" in refused.err
        assert not (tmp_path / "refused").exists()
        await agent.kill()
        copied = await run("copy", url, str(tmp_path / "copied"))
        assert copied.exit == 0, copied.err


async def test_parts_that_a_mesh_has_not_used_yet_need_no_migration(
    tmp_path: Path,
) -> None:
    copies = [tmp_path / "backup", tmp_path / "copied"]
    async with new_database() as url, new_database() as other:
        nothing = await run("check", store=url)
        assert "has no tables of this version of journals, " in nothing.err
        async with PostgresDatabase(url) as database:
            await PostgresFiles(database).write("workflows/a/1.json", b"{}")
            await (await PostgresCatalog(database).open("maker")).close()
            parts = await database.fetch("SELECT part FROM trunkline_schema ORDER BY part")
        checked = await run("check", store=url)
        backed_up = await run("backup", str(copies[0]), store=url)
        copied = await run("copy", url, str(copies[1]))
        restored = await run("restore", str(copies[0]), store=other)
        for done in (checked, backed_up, copied, restored):
            assert done.exit == 0, done.err
        assert [part for (part,) in parts] == ["journals", "small_files"]
        async with PostgresDatabase(other) as database:
            assert await PostgresFiles(database).read("workflows/a/1.json") == b"{}"
    assert checked.out == "maker: ok, 0 tasks, 0 events\n"
    for folder in copies:
        assert "maker.db: ok" in (await run("check", "--data", str(folder))).out


async def test_an_idempotency_key_of_two_journals_is_copied_once(tmp_path: Path) -> None:
    """In files, a repeated submission may have made a second task at another replica."""
    for name in ("echo", "echo.2"):
        store = await SqliteCatalog(tmp_path / "journals").open(name)
        task_id = f"{store.id}-1"
        made = group(stored([created()], task_id=task_id), made=[row(task_id)])
        made.keys.append(SubmissionKey("repeated", "hash", task_id, 10**18))
        await store.commit(made)
        await store.close()
    async with new_database() as url:
        copied = await run("copy", str(tmp_path), url)
        assert copied.exit == 0, copied.err
        async with PostgresDatabase(url) as database:
            keys = await database.fetch("SELECT key FROM trunkline_submission_keys")
    assert [key for (key,) in keys] == ["repeated"]
    assert "1 submission keys left out, because another journal has them" in copied.out


async def test_everything_in_a_data_directory_is_in_the_database_and_back(tmp_path: Path) -> None:
    folder, back = tmp_path / "data", tmp_path / "back"
    await make_full_folder(folder)
    async with new_database() as url:
        there = await run("copy", str(folder), url, "--json")
        async with PostgresDatabase(url) as database:
            files = PostgresFiles(database)
            assert not await PostgresUsedApprovals(files).use("digest")
            assert await files.read("workflows/a/1.json") == b"{}"
            async with PostgresMessageStore.open(database, MessagingSettings(lease_s=1)) as store:
                assert (await store.get("acme", "first")).envelope.text == "hello"
                assert [each.key.recipient for each in await anext(store.deliveries())] == ["echo"]
        checked = await run("check", store=url)
        again = await run("copy", url, str(back), "--json")
    assert checked.out == "maker: ok, 1 tasks, 3 events\n"
    assert (there.json["files"], there.json["file_bytes"]) == (1, len(CONTENT))
    for report in (there.json, again.json):
        assert {name: count for name, count in report["rows"].items() if count} == {
            "tasks": 1,
            "batches of events": 3,
            "conversations": 1,
            "totals of usage": 2,
            "messages": 1,
            "deliveries": 1,
            "used approvals": 1,
            "small files": 1,
        }
    for name in ("journals/maker.db", "private/usage.db"):
        assert dump(folder / name) == dump(back / name)
    memory = await open_sqlite_memory(back / "journals" / "maker.db")
    assert await memory.conversations.find(CONVERSATION) == STATE
    await memory.close()
    checked = await run("check", "--data", str(back))
    assert "journals/maker.db: ok, 1 tasks, 3 events" in checked.out.splitlines()


def dump(path: Path) -> list[str]:
    """Return the rows of a file, without what says who has it."""
    with closing(sqlite3.connect(path)) as connection:
        return [line for line in connection.iterdump() if 'INTO "meta"' not in line]


async def test_cursors_stay_valid_and_those_of_events_after_the_copy_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data" / "journals" / "maker.db"
    journal = open_journal(path)
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([working()])])
    await journal.close()
    # The mesh runs on for a while after this backup.
    await run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data"))
    journal = open_journal(path)
    epoch = journal.epoch
    await journal.append(task_id, epoch, [build_draft([completed()])])
    await journal.close()
    async with new_database() as url, PostgresDatabase(url) as database:
        await run("restore", str(tmp_path / "backup"), store=url)
        store = await PostgresCatalog(database).open("maker")
        journal = Journal(store, await store.list_unfinished())
        await journal.check_cursor(task_id, 2, epoch)
        await journal.append(task_id, journal.epoch, [build_draft([working()])])
        with pytest.raises(CursorExpiredError):
            await journal.check_cursor(task_id, 3, epoch)
        await journal.close()


async def test_a_backup_of_a_database_is_restored_into_another_one_and_into_files(
    tmp_path: Path,
) -> None:
    await make_full_folder(tmp_path / "data")
    backup = tmp_path / "backup"
    async with new_database() as first, new_database() as second:
        await run("copy", str(tmp_path / "data"), first)
        async with PostgresDatabase(first) as database:
            await database.fetch(ADD_AUDIT_RECORD)
            await PostgresFiles(database).write("identity/revoked", b"x")
        made = await run("backup", str(backup), store=first)
        restored = await run("restore", str(backup), store=second)
        assert (made.exit, restored.exit) == (0, 0), (made.err, restored.err)
        assert await count_rows(first) == await count_rows(second)
        not_empty = await run("restore", str(backup), store=second)
        assert "is not empty" in not_empty.err
    in_files = await run("restore", str(backup), "--data", str(tmp_path / "files"))
    assert in_files.exit == 0
    assert (await run("check", "--data", str(tmp_path / "files"))).exit == 0


async def count_rows(url: str) -> dict[str, int]:
    async with PostgresDatabase(url) as database:
        return {
            table: len(await database.fetch(" ".join(("SELECT FROM", table))))
            for table in list_tables()
        }


async def test_a_check_names_a_task_of_a_database_whose_events_are_damaged(tmp_path: Path) -> None:
    await make_full_folder(tmp_path / "data")
    async with new_database() as url:
        await run("copy", str(tmp_path / "data"), url)
        async with PostgresDatabase(url) as database:
            await database.fetch("DELETE FROM trunkline_events WHERE sequence = 2")
        found = await run("check", store=url)
        refused = await run("backup", str(tmp_path / "backup"), store=url)
    assert found.exit == 1
    assert "maker: DAMAGED: task " in found.out
    assert "is damaged" in refused.err
    assert not (tmp_path / "backup").exists()


async def test_a_backup_remembers_used_tokens_in_a_database_and_in_files(tmp_path: Path) -> None:
    token = TokenUse(
        "once",
        Identity.for_agents("m", ["math"]),
        uses=1,
        ends_at=int(datetime.now(UTC).timestamp()) + 86_400,
    )
    backup = tmp_path / "backup"
    async with new_database() as first, new_database() as second:
        async with PostgresDatabase(first) as database:
            await migrate(database)
            records = JoinRecords(PostgresFiles(database), "identity/")
            await records.redeem_token(token, new_key())
        await run("backup", str(backup), store=first)
        await run("restore", str(backup), store=second)
        async with PostgresDatabase(second) as database:
            restored = JoinRecords(PostgresFiles(database), "identity/")
            with pytest.raises(UnauthenticatedError):
                await restored.redeem_token(token, new_key())
    state = tmp_path / "state"
    in_folder = await run_command(
        *("data", "restore", str(backup), "--data", str(tmp_path / "files")),
        TRUNKLINE_IDENTITY_FOLDER=str(state),
    )
    assert in_folder.exit == 0, in_folder.err
    (used,) = state.rglob("used-tokens*")
    in_files = JoinRecords(FolderFiles(used.parent.parent, used.parent.name))
    with pytest.raises(UnauthenticatedError):
        await in_files.redeem_token(token, new_key())


def new_key() -> ec.EllipticCurvePublicKey:
    return ec.generate_private_key(ec.SECP256R1()).public_key()


async def test_a_restore_keeps_the_audit_log_of_a_database_that_has_one(tmp_path: Path) -> None:
    await make_full_folder(tmp_path / "data")
    async with new_database() as url, PostgresDatabase(url) as database:
        await migrate(database)
        await database.fetch(ADD_AUDIT_RECORD)
        refused = await run("restore", str(tmp_path / "data"), store=url)
        assert "is not empty: trunkline_audit has rows" in refused.err
        assert len(await database.fetch("SELECT FROM trunkline_audit")) == 1


async def test_a_check_names_a_damaged_file_of_a_database(tmp_path: Path) -> None:
    await make_full_folder(tmp_path / "data")
    async with new_database() as url:
        await run("copy", str(tmp_path / "data"), url)
        async with PostgresDatabase(url) as database:
            await database.fetch("UPDATE trunkline_blob_chunks SET body = 'x' WHERE position = 0")
        found = await run("check", store=url)
    assert found.exit == 1
    assert " is damaged; " in found.out


async def test_a_copy_that_fails_leaves_the_database_empty(tmp_path: Path) -> None:
    await make_full_folder(tmp_path / "data")
    (tmp_path / "data" / "private" / "messages.db").write_bytes(b"no database")
    async with new_database() as url:
        failed = await run("copy", str(tmp_path / "data"), url)
        assert failed.exit == 1
        (tmp_path / "data" / "private" / "messages.db").unlink()
        copied = await run("copy", str(tmp_path / "data"), url)
    assert copied.out.startswith("1 journals, ")
