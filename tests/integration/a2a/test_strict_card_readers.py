"""Agent cards for readers that refuse what their version does not have."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from a2a.types import a2a_pb2

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.sdk_processes import PYTHON_V0_3, make_environment
from harness.remote.token_issuer import SigningKey, key_set, token_settings, write_api_keys
from trunkline import TaskContext, agent
from trunkline.cli.commands.card import verify_card
from trunkline.cli.exits import ExitCode
from trunkline.core.json_values import parse_dict
from trunkline.core.settings import Settings
from trunkline.v1 import agent_card_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[2]
CARD = "/.well-known/agent-card.json"
ORIGINAL = "/.well-known/agent.json"
KEY = {"X-API-Key": "key-of-ann"}
SECRET = agent_card_pb2.AgentSkill(id="secret", name="s", description="s", tags=["s"])


@agent(
    name="rich",
    description="Has a card with every member that an agent can set.",
    tags=["rich"],
    input_modes=["text/plain"],
    output_modes=["text/plain", "image/png"],
    extended_skills=[SECRET],
)
async def rich(task: TaskContext) -> str:
    return task.text


@asynccontextmanager
async def open_rich_mesh(folder: Path, *, strict_versions: bool) -> AsyncIterator[BridgedMesh]:
    """Open a mesh whose cards are signed and name every kind of credentials."""
    make_environment()
    issuer = SigningKey("issuer")
    (folder / "jwks.json").write_bytes(key_set(issuer))
    (folder / "card.pem").touch(mode=0o600)
    (folder / "card.pem").write_bytes(SigningKey("cards").pem())
    settings = Settings(
        default_agent="rich",
        api_keys_file=write_api_keys(folder / "keys.toml", [("ann", "acme", "key-of-ann")]),
        **token_settings(folder / "jwks.json"),
        anonymous=True,
        card_key=folder / "card.pem",
        strict_versions=strict_versions,
    )
    async with open_bridged_mesh(folder, settings) as opened:
        await opened.mesh.join(rich)
        opened.bridge.addresses.grpc = "127.0.0.1:50052"
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    async with open_rich_mesh(tmp_path_factory.mktemp("mesh"), strict_versions=False) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    async with open_rich_mesh(tmp_path_factory.mktemp("strict"), strict_versions=True) as opened:
        yield opened


async def read(bridged: BridgedMesh, path: str, **headers: str) -> dict[str, Any]:
    response = await bridged.client.get(bridged.url + path, headers=headers)
    assert response.headers["vary"] == "a2a-version"
    card: dict[str, Any] = response.json()
    return card


async def read_strictly(*cards: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Give cards to the model of a2a-sdk 0.3 that refuses unknown members."""
    return await asyncio.to_thread(
        subprocess.run,
        [PYTHON_V0_3, "-m", "partners.strict_reader_v0_3"],
        input="\n".join(map(json.dumps, cards)),
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS,
    )


async def check_accepted(*cards: dict[str, Any]) -> None:
    """Check that the strict reader accepts cards, and reads all of their members."""
    completed = await read_strictly(*cards)
    assert completed.returncode == 0, completed.stderr
    assert tuple(map(json.loads, completed.stdout.splitlines())) == cards


async def test_a_reader_that_names_v0_3_gets_only_its_members(bridged: BridgedMesh) -> None:
    cards = [
        await read(bridged, CARD, **{"A2A-Version": "0.3"}),
        await read(bridged, f"/agents/rich{CARD}", **{"A2A-Version": "0.3.0"}),
        await read(bridged, f"{CARD}?A2A-Version=0.3"),
    ]
    assert cards[0] == cards[2]
    cards.append(
        await bridged.at("/").call(
            "agent/getAuthenticatedExtendedCard", {}, {"A2A-Version": "0.3", **KEY}
        )
    )
    await check_accepted(*cards)
    for card in cards:
        assert {scheme["type"] for scheme in card["securitySchemes"].values()} == {"apiKey", "http"}
        assert card["security"]


async def test_the_strict_reader_refuses_the_card_of_all_versions(bridged: BridgedMesh) -> None:
    completed = await read_strictly(await read(bridged, CARD))
    assert completed.returncode != 0
    assert "supportedInterfaces" in completed.stderr


async def test_a_reader_that_names_v1_0_gets_only_its_members(bridged: BridgedMesh) -> None:
    card = await read(bridged, CARD, **{"A2A-Version": "1.0"})
    # It refuses unknown members.
    parsed = parse_dict(card, a2a_pb2.AgentCard())
    assert set(parsed.security_schemes) == set(card["securitySchemes"]) != set()
    versions = {interface.protocol_version for interface in parsed.supported_interfaces}
    assert versions == {"1.0", "0.3"}
    assert parsed.signatures


@pytest.mark.parametrize("version", ["", "0.1", "9.9", "what?", "0.3, 1.0"])
async def test_every_other_reader_gets_the_card_of_all_versions(
    bridged: BridgedMesh, version: str
) -> None:
    card = await read(bridged, CARD, **{"A2A-Version": version})
    assert card["supportedInterfaces"][0]["protocolVersion"] == "1.0"
    assert (card["protocolVersion"], card["url"]) == ("0.3.0", f"{bridged.url}/")
    # Readers with a polymorphic model may need the type first.
    assert {next(iter(scheme)) for scheme in card["securitySchemes"].values()} == {"type"}
    parsed = parse_dict(card, a2a_pb2.AgentCard(), ignore_unknown_fields=True)
    assert set(parsed.security_schemes) == set(card["securitySchemes"])


async def test_strict_versions_serve_readers_of_v0_3_that_name_no_version(
    strict: BridgedMesh,
) -> None:
    """Clients of v0.3 send no version, and A2A 1.0 has servers treat that as v0.3."""
    paths = (CARD, f"/agents/rich{CARD}", ORIGINAL)
    cards = [await read(strict, path) for path in paths]
    assert cards == [await read(strict, path, **{"A2A-Version": ""}) for path in paths]
    await check_accepted(*cards)


async def test_strict_versions_serve_readers_of_v1_0(strict: BridgedMesh) -> None:
    card = await read(strict, CARD, **{"A2A-Version": "1.0"})
    assert parse_dict(card, a2a_pb2.AgentCard()).signatures
    keys = f"{strict.url}/.well-known/jwks.json"
    assert await verify_card(strict.url, jwks=keys) == ExitCode.OK
