"""The files of an answer never replace or delete files that are there."""

from pathlib import Path

import pytest

from trunkline.cli.agent_client import AgentClient
from trunkline.cli.attachments import read_parts, save_files
from trunkline.v1.part_pb2 import Part


@pytest.mark.asyncio
async def test_a_broken_link_of_the_same_name_stays(tmp_path: Path) -> None:
    link = tmp_path / "report.txt"
    link.symlink_to(tmp_path / "missing")
    async with AgentClient("http://127.0.0.1:1") as client:
        await save_files(client, [Part(raw=b"x", filename="report.txt")], tmp_path)
    assert link.is_symlink()
    assert (tmp_path / "report-2.txt").read_bytes() == b"x"


def test_the_part_of_a_url_has_the_name_and_type_of_its_path() -> None:
    assert read_parts(["https://example.com/a/b.pdf?x=1", "https://example.com/"]) == [
        Part(
            url="https://example.com/a/b.pdf?x=1",
            filename="b.pdf",
            media_type="application/pdf",
        ),
        Part(url="https://example.com/"),
    ]
