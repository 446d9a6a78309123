"""A host that listens on all addresses advertises one that others can reach."""

from pathlib import Path

from harness.mesh.command_line import run_command, start_command
from harness.mesh.host_processes import Caller, has_ended, text_of
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import open_services
from trunkline.mesh.client import ChannelPool, Directory

# All of 127.0.0.0/8 is local on Linux, so the test has its own address.
_ELSEWHERE = "127.0.0.2"
_ALL = ("--listen", "0.0.0.0:0")


async def test_others_reach_a_host_at_its_advertised_address(tmp_path: Path) -> None:
    async with open_services(tmp_path) as services, ChannelPool(mesh_credentials()) as channels:
        await services.start("registry", "registry")
        words = (*_ALL, "--mesh", services.mesh_address, "--advertise", _ELSEWHERE)
        async with (
            start_command("serve", "agents", "supervisor", *words, folder=tmp_path),
            start_command("serve", "agents", "echo", *words, folder=tmp_path),
            Directory(channels, services.mesh_address) as directory,
        ):
            caller = Caller(directory)
            await caller.wait_for_agents("supervisor", "echo")
            addresses = [directory.choose_host(name).address for name in ("supervisor", "echo")]
            assert [host_address.rpartition(":")[0] for host_address in addresses] == [
                _ELSEWHERE,
                _ELSEWHERE,
            ]
            # Each process calls the others at these addresses: a task of one is a child of the
            # other's.
            ended = await caller.until(
                await caller.begin("@echo hi", agent="supervisor"), has_ended
            )
            assert "hi" in text_of(ended)


async def test_a_host_without_a_reachable_address_does_not_start(tmp_path: Path) -> None:
    for words in (("serve", "agents", "echo"), ("serve", "tools")):
        result = await run_command(*words, *_ALL, folder=tmp_path)
        assert result.exit == 2
        assert "give --advertise HOST, or HOST:PORT" in result.err
