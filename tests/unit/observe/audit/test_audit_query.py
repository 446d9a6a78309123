"""Pages of the audit log, the newest record first."""

import json
from pathlib import Path
from typing import Any

import pytest

from trunkline.errors import InvalidArgumentError
from trunkline.observe.audit import (
    AuditFile,
    AuditPage,
    AuditQuery,
    FileAuditReader,
    find_end,
    read_audit_page,
    read_newer_records,
)


def write(path: Path, *entries: dict[str, Any], size_bytes: int = 1 << 20) -> AuditFile:
    file = AuditFile(path, size_bytes=size_bytes, age_s=24 * 3600.0, files=100)
    for entry in entries:
        file.append(line(entry))
    return file


def line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {"time": f"2026-11-24T12:00:{number % 60:02d}.000000Z", "number": number, **fields}


def numbers(page: AuditPage) -> list[int]:
    return [found["number"] for found in page.records]


async def read_all(path: Path, size: int) -> list[int]:
    found, token = [], ""
    while True:
        page = await read_audit_page(
            FileAuditReader(path), AuditQuery(), page_size=size, page_token=token
        )
        assert len(page.records) <= size
        found += numbers(page)
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("padding", [0, 700, 40_000])
async def test_pages_over_files_and_blocks_have_each_record_once(
    tmp_path: Path, padding: int
) -> None:
    path = tmp_path / "audit.jsonl"
    entries = [record(number, padding="x" * padding) for number in range(60)]
    write(path, *entries, size_bytes=100_000).close()
    for size in (1, 7, 100):
        assert await read_all(path, size) == list(range(59, -1, -1))


async def test_a_page_token_survives_new_records_and_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = write(path, *(record(number) for number in range(5)), size_bytes=500)
    first = await read_audit_page(FileAuditReader(path), AuditQuery(), page_size=2)
    assert numbers(first) == [4, 3]
    for number in range(5, 30):
        file.append(json.dumps(record(number)).encode() + b"\n")
    file.close()
    second = await read_audit_page(
        FileAuditReader(path), AuditQuery(), page_size=2, page_token=first.next_page_token
    )
    assert numbers(second) == [2, 1]


async def test_lines_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, record(1)).close()
    with path.open("ab") as opened:
        opened.write(b"x" * 200_000 + b"\n\n[1]\n" + json.dumps(record(2)).encode() + b"\n")
        # A process is writing the rest.
        opened.write(b'{"number":3,"padding":"' + b"y" * 100_000)
    assert await read_all(path, 10) == [2, 1]


async def test_filters_select_records(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    acme = {"account": "acme"}
    write(
        path,
        record(1, action="task.cancel", outcome="ok", actor=acme, object={"task": "t"}),
        record(2, action="key.add", outcome="denied", actor={"account": "other"}),
    ).close()

    async def select(**fields: str) -> list[int]:
        return numbers(
            await read_audit_page(FileAuditReader(path), AuditQuery(**fields), page_size=10)
        )

    assert await select(account="acme") == [1]
    assert await select(action="task.*") == await select(task="t") == [1]
    assert await select(outcome="denied") == [2]
    assert await select(since="2026-11-24T12:00:02.000000Z") == [2]
    assert await select(since="0001-01-01T00:00:00.000000Z") == [2, 1]


async def test_an_unknown_token_and_no_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with pytest.raises(InvalidArgumentError):
        await read_audit_page(FileAuditReader(path), AuditQuery(), page_size=1, page_token="x")
    assert await read_audit_page(FileAuditReader(path), AuditQuery(), page_size=1) == AuditPage(
        [], [], ""
    )


async def test_newer_records_are_those_after_a_position_also_after_a_rotation(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    assert await find_end(FileAuditReader(path)) is None
    file = write(path, record(1))
    begin = await read_newer_records(FileAuditReader(path), None)
    assert begin is not None
    assert numbers(begin) == [1]
    assert list(begin.positions) == [await find_end(FileAuditReader(path))]
    file.append(b"".join(line(record(number)) for number in (2, 3)))
    path.rename(path.with_name("audit.000001.jsonl"))
    file.append(line(record(4)))
    file.close()
    newer = await read_newer_records(FileAuditReader(path), begin.positions[0])
    assert newer is not None
    assert numbers(newer) == [4, 3, 2]
    assert len(set(newer.positions)) == 3
    nothing = await read_newer_records(FileAuditReader(path), newer.positions[0])
    assert nothing is not None
    assert not nothing.records


async def test_a_reader_far_behind_reads_a_page_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = write(path, record(1))
    begin = await find_end(FileAuditReader(path))
    for number in range(10):
        file.append(line(record(number, object={"padding": "y" * 50_000})))
    file.close()
    assert await read_newer_records(FileAuditReader(path), begin) is None
