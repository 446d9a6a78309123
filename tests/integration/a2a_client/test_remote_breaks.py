"""Connections to a remote agent break repeatedly: no text is doubled, lost or reordered."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import open_bridge_grpc
from harness.agents.fuzz_agents import leaf, texts_of
from harness.agents.inline_agents import status_texts
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.cutting_relay import open_relay
from trunkline.a2a_client.agent_card import RemoteCard
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.settings import Settings
from trunkline.mesh.client.breaker import BreakerSettings
from trunkline.tasks.lifecycle import State

SEEDS = range(3)


def growing(seed: int, *, least: int = 1500) -> Iterator[int]:
    """Early answers are cut sooner than later ones, so that a snapshot arrives eventually."""
    rng = random.Random(seed)
    for number in itertools.count():
        yield rng.randrange(least, 3 * least) + least * number // 8


@pytest.mark.parametrize("resumes", [True, False], ids=["resumed", "reconciled"])
@pytest.mark.parametrize("spoken", ["JSONRPC 1.0", "JSONRPC 0.3", "HTTP+JSON 1.0", "HTTP+JSON 0.3"])
async def test_text_survives_cuts_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoken: str, *, resumes: bool
) -> None:
    monkeypatch.setattr(RemoteCard, "supports_resume", property(lambda _: resumes))
    binding, version = spoken.split()
    async with asyncio.timeout(PATIENCE_S), open_relay(growing(7)) as relay:
        settings = Settings(default_agent="leaf", public_url=f"http://{relay.address}")
        remote = RemoteSettings(
            url=f"http://{relay.address}",
            name="far",
            bindings=(binding,),
            versions=(version,),
            breaker=BreakerSettings(failures=1000),
        )
        async with open_bridged_mesh(tmp_path, settings) as bridged:
            relay.target = bridged.url.removeprefix("http://")
            await bridged.mesh.join(leaf)
            relay.budgets = itertools.repeat(1 << 20)
            async with connect_remote_agent(remote) as found:
                relay.budgets = growing(7)
                await bridged.mesh.join(found.agent)
                for seed in SEEDS:
                    task = await bridged.mesh.ask(str(seed), agent="far")
                    assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
                    texts_by_name = {
                        a.name: "".join(p.text for p in a.parts) for a in task.task.artifacts
                    }
                    assert texts_by_name == texts_of(seed)
        assert relay.cuts > 0


async def test_over_grpc_the_stream_resumes_after_the_last_event(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), open_relay(itertools.repeat(1 << 20)) as relay:
        settings = Settings(default_agent="leaf")
        async with (
            open_bridged_mesh(tmp_path, settings) as bridged,
            open_bridge_grpc(bridged) as grpc,
        ):
            relay.target = grpc.address
            bridged.bridge.addresses.grpc = relay.address
            await bridged.mesh.join(leaf)
            remote = RemoteSettings(
                url=bridged.url, name="far", bindings=("GRPC",), hosts=("127.0.0.1",)
            )
            async with connect_remote_agent(remote) as found:
                await bridged.mesh.join(found.agent)
                relay.budgets = growing(3, least=300)
                for seed in SEEDS:
                    task = await bridged.mesh.ask(str(seed), agent="far")
                    assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
                    texts_by_name = {
                        a.name: "".join(p.text for p in a.parts) for a in task.task.artifacts
                    }
                    assert texts_by_name == texts_of(seed)
                assert relay.cuts > 0
