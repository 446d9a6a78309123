"""The commands of the pages on replicas and machines, in their order: they start and die."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.journal.postgres_server import new_database
from harness.mesh.command_line import COMMAND, run_command
from harness.mesh.host_processes import QUICK
from harness.mesh.processes import free_address, read_line, running_process
from harness.pages import ROOT, commands, read_blocks, trunkline_words
from harness.polling import poll

if TYPE_CHECKING:
    from asyncio.subprocess import Process

PORTS = ("127.0.0.1:50061", "127.0.0.1:50062")


@pytest.mark.parametrize("page", ["scale", "machines"])
async def test_the_commands_of_the_page_do_what_it_shows(tmp_path: Path, page: str) -> None:
    async with AsyncExitStack() as stack:
        store = ""
        if page == "machines":
            store = await stack.enter_async_context(new_database())
        await check_page(page, tmp_path, {"TRUNKLINE_STORE": store} if store else {}, stack)


async def check_page(
    name: str, folder: Path, environment: Mapping[str, str], stack: AsyncExitStack
) -> None:
    """Run the commands of a page, and assert that they print what it shows."""
    listen = {port: free_address() for port in PORTS}
    mesh, http = free_address(), free_address()
    variables = {
        "TRUNKLINE_MESH": mesh,
        "TRUNKLINE_HTTP": http,
        "TRUNKLINE_A2A_GRPC": "127.0.0.1:0",
        "TRUNKLINE_URL": f"http://{http}",
        **QUICK,
        **environment,
    }
    page = read_blocks(ROOT / f"docs/{name}.md")
    steps = [step for block in page if block.language == "console" for step in commands(block)]
    replicas: dict[str, Process] = {}
    for words, shown in steps:
        arguments = trunkline_words(words)
        if arguments is None:
            if words[0] == "rm":
                shutil.rmtree(folder / words[-1])
                continue
            assert words[:2] == ["kill", "-9"]
            (port,) = (port for port in PORTS if port in words[-1])
            replicas[port].kill()
            await replicas[port].wait()
        elif arguments[0] == "serve":
            local = [listen.get(word, word) for word in arguments]
            process = await stack.enter_async_context(
                running_process(*COMMAND, *local, cwd=folder, environment=variables)
            )
            await read_line(process, "ready ")
            replicas[arguments[-1]] = process
        else:
            expected = read_table("\n".join(shown), listen)
            # A new host is on the mesh of the bridge a moment after it is ready.
            await poll(partial(run, arguments, variables), expected.__eq__)


async def run(arguments: Sequence[str], variables: Mapping[str, str]) -> list[list[str]]:
    done = await run_command(*arguments, stdin=None, folder=None, **variables)
    return read_table(done.out, {})


def read_table(text: str, names: Mapping[str, str]) -> list[list[str]]:
    """Return the words of each line, with other names for some; the lines are sorted."""
    return sorted([names.get(word, word) for word in line.split()] for line in text.splitlines())
