"""The records of processes that joined, in a folder and in a database: tokens and revocations."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from harness.journal.postgres_server import new_database
from trunkline.core.identity import Identity, JoinRecords, RevocationList
from trunkline.core.identity.certificates import create_key
from trunkline.core.identity.tokens import TokenUse
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.postgres.small_files import PostgresFiles
from trunkline.core.small_files import FolderFiles, SmallFiles
from trunkline.errors import ConfigurationError, JournalUnavailableError, UnauthenticatedError

MATH = replace(Identity.for_agents("mesh-1", ["math"]), instance="0123")
OTHER = replace(Identity.for_agents("mesh-1", ["other"]), instance="4567")
HOUR_S = 3600.0
NEVER = 4_000_000_000
TOKEN = TokenUse("token-1", Identity.for_agents("mesh-1", ["math"]), uses=2, ends_at=NEVER)


class Store(NamedTuple):
    """The records of a mesh, and the files that they are in."""

    files: SmallFiles
    open_records: Callable[[], JoinRecords]
    """Opens the records as a further registry."""

    async def age(self, by_s: float) -> None:
        """Move the ends of all certificates into the past."""
        entries = json.loads(await self.files.read("joined") or b"[]")
        aged = [entry | {"ends_at": entry["ends_at"] - by_s} for entry in entries]
        await self.files.write("joined", json.dumps(aged).encode())


@pytest.fixture(params=["folder", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        if request.param == "folder":
            files = FolderFiles(tmp_path)
            yield Store(files, lambda: JoinRecords(FolderFiles(tmp_path)))
            return
        url = await stack.enter_async_context(new_database())

        def open_files() -> PostgresFiles:
            database = PostgresDatabase(url)
            stack.push_async_exit(database)
            return PostgresFiles(database)

        yield Store(open_files(), lambda: JoinRecords(open_files()))


async def list_revoked(store: Store) -> frozenset[str]:
    return await RevocationList(store.open_records(), lambda _: None).refresh()


@pytest.mark.parametrize("is_revoked_late", [False, True])
async def test_a_revocation_outlives_the_certificate(store: Store, is_revoked_late: bool) -> None:
    # Connections that are older than its end, and statements signed before, are valid for a day.
    records = store.open_records()
    await records.record_certificate(MATH, lifetime_s=HOUR_S)
    if not is_revoked_late:
        await records.revoke(["agents/math"])
    await store.age(by_s=24 * HOUR_S)
    if is_revoked_late:
        await records.revoke(["agents/math"])
    await records.record_certificate(OTHER, lifetime_s=HOUR_S)
    assert await list_revoked(store) == {MATH.instance}
    assert [process.instance for process in await records.list_joined()] == [OTHER.instance]
    with pytest.raises(UnauthenticatedError, match="revoked"):
        await records.record_certificate(MATH, lifetime_s=HOUR_S)
    await store.age(by_s=48 * HOUR_S)
    await records.record_certificate(OTHER, lifetime_s=HOUR_S)
    assert await list_revoked(store) == frozenset()


async def test_one_key_can_not_join_for_other_agents(store: Store) -> None:
    # Otherwise the list would name it by the agents of its first token alone.
    records = store.open_records()
    await records.record_certificate(MATH, lifetime_s=HOUR_S)
    with pytest.raises(UnauthenticatedError, match="agents/math"):
        await records.record_certificate(replace(OTHER, instance=MATH.instance), lifetime_s=HOUR_S)


async def test_each_registry_sees_what_another_one_revoked(store: Store) -> None:
    registries = [store.open_records() for _ in range(3)]
    processes = [replace(MATH, instance=f"{number:04}") for number in range(9)]
    async with asyncio.TaskGroup() as group:
        for number, process in enumerate(processes):
            records = registries[number % 3]
            group.create_task(records.record_certificate(process, lifetime_s=HOUR_S))
    changes: list[frozenset[str]] = []
    revocations = RevocationList(registries[0], changes.append)
    assert await revocations.refresh() == frozenset()
    revoked = await registries[1].revoke(["0002", "0007", "agents/nobody"])
    assert sorted(process.instance for process in revoked) == ["0002", "0007"]
    assert await revocations.refresh() == await revocations.refresh() == {"0002", "0007"}
    assert changes == [{"0002", "0007"}]
    assert len(await registries[2].list_joined()) == 9


def new_key() -> ec.EllipticCurvePublicKey:
    return create_key()[0]


async def can_redeem(records: JoinRecords, key: ec.EllipticCurvePublicKey) -> bool:
    try:
        await records.redeem_token(TOKEN, key)
    except UnauthenticatedError:
        return False
    return True


async def test_a_token_is_used_as_often_as_it_says_over_all_registries(store: Store) -> None:
    registries = [store.open_records() for _ in range(4)]
    keys = [new_key() for _ in range(8)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(can_redeem(records, key))
            for records, key in zip(registries * 2, keys, strict=True)
        ]
    joined = [key for key, task in zip(keys, tasks, strict=True) if task.result()]
    assert len(joined) == TOKEN.uses
    with pytest.raises(UnauthenticatedError, match="used up"):
        await store.open_records().redeem_token(TOKEN, new_key())
    # The answer to the same request may have been lost, and another registry gets it again.
    for records in registries:
        await records.redeem_token(TOKEN, joined[0])


async def test_a_revoked_token_is_used_up_at_all_registries(store: Store) -> None:
    await store.open_records().revoke_token(TOKEN)
    with pytest.raises(UnauthenticatedError, match="used up"):
        await store.open_records().redeem_token(TOKEN, new_key())
    await store.open_records().redeem_token(replace(TOKEN, token_id="token-2"), new_key())


async def test_uses_that_can_not_be_counted_are_an_error(store: Store) -> None:
    await store.files.write("used-tokens", b"[1, 2")
    with pytest.raises(ConfigurationError, match="remove it"):
        await store.open_records().redeem_token(TOKEN, new_key())


async def test_a_mesh_that_gets_a_database_keeps_its_revocations_and_used_tokens(
    store: Store, tmp_path: Path
) -> None:
    former = JoinRecords(FolderFiles(tmp_path / "former"))
    await former.record_certificate(MATH, lifetime_s=HOUR_S)
    await former.revoke(["agents/math"])
    await former.revoke_token(TOKEN)
    records = store.open_records()
    await records.add_from(former)
    assert await list_revoked(store) == {MATH.instance}
    with pytest.raises(UnauthenticatedError, match="used up"):
        await records.redeem_token(TOKEN, new_key())
    # Another registry starts with records of its own.
    another = JoinRecords(FolderFiles(tmp_path / "another"))
    another_token = replace(TOKEN, token_id="token-of-another")
    await another.record_certificate(OTHER, lifetime_s=HOUR_S)
    await another.revoke([OTHER.instance])
    await another.revoke_token(another_token)
    await records.add_from(another)
    assert await list_revoked(store) == {MATH.instance, OTHER.instance}
    for token in (TOKEN, another_token):
        with pytest.raises(UnauthenticatedError, match="used up"):
            await records.redeem_token(token, new_key())
    await store.open_records().add_from(former)
    assert [process.instance for process in await records.list_joined()] == ["0123", "4567"]


async def test_without_the_database_no_token_is_accepted() -> None:
    async with PostgresDatabase("postgresql://nobody@127.0.0.1:1/none") as database:
        with pytest.raises(JournalUnavailableError):
            await JoinRecords(PostgresFiles(database)).redeem_token(TOKEN, new_key())
