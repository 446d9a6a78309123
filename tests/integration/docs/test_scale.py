"""The commands of the pages on replicas and machines, in their order: they start and die."""

import itertools
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
from harness.pages import ROOT, Block, commands, read_blocks
from harness.polling import poll

if TYPE_CHECKING:
    from asyncio.subprocess import Process

REGISTRY = "machine-2:50051"
PORTS = (REGISTRY, "127.0.0.1:50061", "127.0.0.1:50062", "machine-1:50061", "machine-2:50062")


@pytest.mark.parametrize("page", ["scale", "machines"])
async def test_the_commands_of_the_page_do_what_it_shows(tmp_path: Path, page: str) -> None:
    for name, section in itertools.groupby(
        (block for block in read_blocks(ROOT / f"docs/{page}.md") if block.language == "console"),
        # A section on machines has a mesh of its own.
        lambda block: block.section if page == "machines" else page,
    ):
        async with AsyncExitStack() as stack:
            environment = {}
            if page == "machines":
                environment["TRUNKLINE_STORE"] = await stack.enter_async_context(new_database())
            await check_commands([*section], tmp_path / name, environment, stack)


async def check_commands(
    blocks: Sequence[Block], folder: Path, environment: Mapping[str, str], stack: AsyncExitStack
) -> None:
    """Run commands on the machines that they name, and assert that they print what is shown."""
    listen = {port: free_address() for port in PORTS}
    http = free_address()
    mesh = free_address()
    is_one_registry = all(REGISTRY not in block.text for block in blocks)
    variables = {
        "TRUNKLINE_MESH": mesh if is_one_registry else f"{mesh},{listen[REGISTRY]}",
        # Both machines are this one, so that the second registry picks another port for tokens.
        **({"TRUNKLINE_JOIN": free_address()} if is_one_registry else {}),
        "TRUNKLINE_HTTP": http,
        "TRUNKLINE_A2A_GRPC": "127.0.0.1:0",
        "TRUNKLINE_URL": f"http://{http}",
        **QUICK,
        **environment,
    }
    machine = Machine(folder / "machine-1", variables)
    replicas: dict[str, Process] = {}
    for words, shown in (step for block in blocks for step in commands(block)):
        match words:
            case ["ssh", name]:
                machine = Machine(folder / name, variables)
            case ["exit"]:
                machine = Machine(folder / "machine-1", variables)
            case ["rm", "-r", name]:
                shutil.rmtree(machine.folder / name)
            case ["kill", "-9", *finding]:
                (found,) = (name for name in replicas if name in finding[-1])
                replicas[found].kill()
                await replicas[found].wait()
            case ["scp", "-r", source, target]:
                name, _, path = target.partition(":")
                state = Path(path, Path(source).name).relative_to(".local/state")
                shutil.copytree(
                    machine.state / state, Machine(folder / name, variables).state / state
                )
            case ["trunkline", "serve", *arguments]:
                local = [listen.get(word, word) for word in arguments]
                replicas[arguments[-1]] = await stack.enter_async_context(
                    running_process(
                        *(*COMMAND, "serve", *local),
                        cwd=machine.folder,
                        environment=machine.variables,
                    )
                )
                await read_line(replicas[arguments[-1]], "ready ")
            case ["trunkline", "mesh", "token", *arguments]:
                done = await machine.run("mesh", "token", *arguments)
                listen[shown[0]] = done.strip()
            case ["trunkline", *arguments]:
                expected = read_table("\n".join(shown), listen)
                run = partial(machine.run, *(listen.get(word, word) for word in arguments))
                # A new host is on the mesh of the bridge a moment after it is ready.
                await poll(run, lambda output: read_table(output, {}) == expected)  # noqa: B023
            case _:
                raise AssertionError(words)


class Machine:
    """A machine that has a folder and an identity of its own."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state = folder / "state"
        self.variables = {
            **variables,
            "TRUNKLINE_IDENTITY_FOLDER": "",
            "XDG_STATE_HOME": str(self.state),
        }

    async def run(self, *arguments: str) -> str:
        """Run a command; return its output."""
        return (await run_command(*arguments, stdin=None, folder=self.folder, **self.variables)).out


def read_table(text: str, names: Mapping[str, str]) -> list[list[str]]:
    """Return the words of each line, with other names for some; the lines are sorted."""
    return sorted([names.get(word, word) for word in line.split()] for line in text.splitlines())
