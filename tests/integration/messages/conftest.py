"""Places where messages are stored, for tests of messages in all modes."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from harness.journal.postgres_server import new_database
from harness.mesh.messages import Place
from harness.mesh.small_mesh import PATIENCE_S
from harness.valkey import ValkeyServer, running_valkey


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["local", "distributed", "database"])
async def place(request: pytest.FixtureRequest, valkey: ValkeyServer) -> AsyncIterator[Place]:
    """The settings of all modes: each promise holds in all of them."""
    if request.param == "database":
        async with new_database() as url:
            yield {"store": url, "lease_s": PATIENCE_S}
        return
    stream = f"messages-{uuid.uuid4().hex}"
    # A lease that a busy machine loses makes a delivery, and the span of its reply, once more.
    yield {"mode": request.param, "url": valkey.url, "stream": stream, "lease_s": PATIENCE_S}
