"""A host that listens on all addresses of its machine says by which one the others reach it."""

from pathlib import Path

from harness.command_line import run, starting
from harness.mesh_callers import Caller, has_ended, text_of
from harness.processes import open_services
from trunkline.client import Channels, Directory

# Linux takes all of 127.0.0.0/8 for this machine: an address of its own for the test.
_ELSEWHERE = "127.0.0.2"
_ALL = ("--listen", "0.0.0.0:0", "--insecure")


async def test_others_reach_a_host_where_it_says(tmp_path: Path) -> None:
    async with open_services(tmp_path) as services, Channels() as channels:
        await services.start("registry", "registry")
        words = (*_ALL, "--mesh", services.mesh_address, "--advertise", _ELSEWHERE)
        async with (
            starting("serve", "agents", "supervisor", *words, folder=tmp_path),
            starting("serve", "agents", "echo", *words, folder=tmp_path),
            Directory(channels, services.mesh_address) as directory,
        ):
            caller = Caller(directory)
            await caller.sees("supervisor", "echo")
            places = [directory.host_of_agent(name).address for name in ("supervisor", "echo")]
            assert [place.rpartition(":")[0] for place in places] == [_ELSEWHERE, _ELSEWHERE]
            # Each process reaches the others there: a task of one is a child of the other's.
            ended = await caller.until(
                await caller.begin("@echo hi", agent="supervisor"), has_ended
            )
            assert "hi" in text_of(ended)


async def test_a_host_that_nobody_could_find_is_not_served(tmp_path: Path) -> None:
    for words in (("serve", "agents", "echo"), ("serve", "tools")):
        done = await run(*words, *_ALL, folder=tmp_path)
        assert done.exit == 1
        assert "give --advertise HOST, or HOST:PORT" in done.err
