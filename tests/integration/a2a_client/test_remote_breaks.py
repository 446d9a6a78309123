"""Connections to a remote agent break repeatedly: no text is doubled, lost or reordered."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import open_bridge_grpc
from harness.agents.fuzz_agents import leaf, texts_of
from harness.agents.inline_agents import status_texts
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh
from harness.remote.cutting_relay import Relay, open_relay
from trunkline.a2a_client.agent_card import RemoteCard
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.settings import Settings
from trunkline.mesh.client.breaker import BreakerSettings
from trunkline.tasks.lifecycle import State

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEEDS = range(2)
UNCUT = itertools.repeat(1 << 30)
# The wire, whether its streams are resumed or reconciled, and the bytes of its first answers. Over
# gRPC, only a stream that resumes survives cuts.
WIRES = [
    ("JSONRPC 1.0", True, 1500),
    ("JSONRPC 1.0", False, 1500),
    ("HTTP+JSON 0.3", True, 1500),
    ("HTTP+JSON 0.3", False, 1500),
    ("GRPC 1.0", True, 300),
]


def growing(seed: int, least: int) -> Iterator[int]:
    """Early answers are cut sooner than later ones, so that a snapshot arrives eventually."""
    rng = random.Random(seed)
    for number in itertools.count():
        yield rng.randrange(least, 3 * least) + least * number // 8


@dataclass(frozen=True)
class CutMesh:
    """A mesh whose public addresses are those of relays."""

    mesh: SmallMesh
    http: Relay
    grpc: Relay


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cut(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CutMesh]:
    async with AsyncExitStack() as stack:
        http, grpc = [await stack.enter_async_context(open_relay(UNCUT)) for _ in range(2)]
        settings = Settings(default_agent="leaf", public_url=f"http://{http.address}")
        folder = tmp_path_factory.mktemp("mesh")
        bridged = await stack.enter_async_context(open_bridged_mesh(folder, settings))
        edge = await stack.enter_async_context(open_bridge_grpc(bridged))
        http.target, grpc.target = bridged.url.removeprefix("http://"), edge.address
        bridged.bridge.addresses.grpc = grpc.address
        await bridged.mesh.join(leaf)
        yield CutMesh(bridged.mesh, http, grpc)


@pytest.mark.parametrize(("wire", "resumes", "least"), WIRES)
async def test_text_survives_cuts_unchanged(
    cut: CutMesh, monkeypatch: pytest.MonkeyPatch, wire: str, *, resumes: bool, least: int
) -> None:
    monkeypatch.setattr(RemoteCard, "supports_resume", property(lambda _: resumes))
    binding, version = wire.split()
    name = f"far-{WIRES.index((wire, resumes, least))}"
    settings = RemoteSettings(
        url=f"http://{cut.http.address}",
        name=name,
        bindings=(binding,),
        versions=(version,),
        hosts=("127.0.0.1",),
        breaker=BreakerSettings(failures=1000),
    )
    relay = cut.grpc if binding == "GRPC" else cut.http
    before = relay.cuts
    async with asyncio.timeout(PATIENCE_S), connect_remote_agent(settings) as remote:
        await cut.mesh.join(remote.agent)
        relay.budgets = growing(7, least)
        for seed in SEEDS:
            task = await cut.mesh.ask(str(seed), agent=name)
            assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
            texts = {each.name: "".join(p.text for p in each.parts) for each in task.task.artifacts}
            assert texts == texts_of(seed)
        relay.budgets = UNCUT
    assert relay.cuts > before
