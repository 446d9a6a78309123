"""Faults that a seed draws, and links between nodes."""

import asyncio
import itertools
import random

import pytest

from harness.histories.faults import Fault, FaultKind, draw_faults
from harness.network.nodes import HEALTHY, Link, Network, Node, open_network

SERVICES = ("bridge", "host")
NODES = (*SERVICES, "clients", "database")
# The seconds that a sender waits.
LIMIT_S = 0.4


def draw(seed: int, count: int = 200) -> list[Fault]:
    return draw_faults(
        random.Random(seed), count, list(FaultKind), services=SERVICES, nodes=NODES, lease_s=2
    )


def test_a_seed_draws_the_same_faults() -> None:
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_each_kind_of_fault_is_drawn_and_no_two_are_on_one_target_at_once() -> None:
    faults = draw(1)
    assert len(faults) == 200
    assert {fault.kind for fault in faults} == set(FaultKind)
    for one, other in itertools.combinations(faults, 2):
        if one.targets & other.targets:
            assert one.until_s < other.at_s or other.until_s < one.at_s
    assert any(one.until_s > other.at_s for one, other in itertools.pairwise(faults))


async def reaches(network: Network, sender: str, receiver: str) -> bool:
    """Return whether a packet arrives, as far as a connection shows it."""
    listener = await start_listener(network.nodes[receiver])
    try:
        code = (
            "import socket, sys; socket.create_connection((sys.argv[1], 9000), float(sys.argv[2]))"
        )
        words = ("python3", "-c", code, network.nodes[receiver].host, f"{LIMIT_S}")
        client = await asyncio.create_subprocess_exec(
            *network.nodes[sender].entry, *words, stderr=asyncio.subprocess.DEVNULL
        )
        return await client.wait() == 0
    finally:
        listener.kill()
        await listener.wait()


async def start_listener(node: Node) -> asyncio.subprocess.Process:
    code = (
        "import socket, sys; server = socket.create_server((sys.argv[1], 9000)); print(flush=True)"
        "\nwhile True: server.accept()"
    )
    listener = await asyncio.create_subprocess_exec(
        *node.entry, "python3", "-c", code, node.host, stdout=asyncio.subprocess.PIPE
    )
    assert listener.stdout is not None
    assert await listener.stdout.readline()
    return listener


async def test_links_fail_as_told() -> None:
    async with open_network("a", "b", "c") as network:
        assert await reaches(network, "a", "b")
        if not network.has_links:
            with pytest.raises(AssertionError, match="no links"):
                await network.set_link("a", "b", Link(is_cut=True))
            return
        for sender, receiver in (("a", "b"), ("b", "a")):
            await network.set_link(sender, receiver, Link(is_cut=True))
            assert not await reaches(network, "a", "b")
            assert await reaches(network, "a", "c")
            await network.set_link(sender, receiver, HEALTHY)
        await network.set_link("a", "b", Link(loss=1.0))
        assert not await reaches(network, "a", "b")
        # Later than the sender waits.
        await network.set_link("a", "b", Link(delay_s=2 * LIMIT_S))
        assert not await reaches(network, "a", "b")
        await network.set_link("a", "b", Link(delay_s=LIMIT_S / 10))
        assert await reaches(network, "a", "b")
