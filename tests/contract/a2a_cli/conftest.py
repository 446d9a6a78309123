"""The agents and the command line for the requirements of A2A's command-line standard.

The agent has every capability and all three bindings, and its callers need an API key.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.standard_cli import StandardCli
from harness.conformance.registry import ALL, NONE, System, open_system


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    async with open_system(tmp_path_factory.mktemp("mesh"), ALL) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def plain_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """An agent without streaming, push notifications and authentication."""
    async with open_system(tmp_path_factory.mktemp("plain"), NONE) as opened:
        yield opened


@pytest.fixture
def cli(tmp_path: Path) -> StandardCli:
    """The command line without an agent."""
    return StandardCli(tmp_path)


@pytest.fixture
def agent(cli: StandardCli, system: System) -> StandardCli:
    """The command line for the agent, with Ann's key."""
    key = system.headers["X-API-Key"]
    return cli.at(system.mesh.bridged.url, A2ACLI_API_KEY=key, A2ACLI_POLL_INTERVAL="20ms")


@pytest.fixture
def plain_agent(cli: StandardCli, plain_system: System) -> StandardCli:
    """The command line for the agent without capabilities."""
    return cli.at(plain_system.mesh.bridged.url, A2ACLI_POLL_INTERVAL="20ms")
