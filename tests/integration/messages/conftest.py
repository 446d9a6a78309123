"""Places where messages are stored, for tests of messages in both modes."""

import uuid
from collections.abc import Iterator

import pytest

from harness.mesh.messages import Place
from harness.mesh.small_mesh import PATIENCE_S
from harness.valkey import ValkeyServer, running_valkey


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["local", "distributed"])
def place(request: pytest.FixtureRequest, valkey: ValkeyServer) -> Place:
    """The settings of both modes: each promise holds in both."""
    stream = f"messages-{uuid.uuid4().hex}"
    # A lease that a busy machine loses makes a delivery, and the span of its reply, once more.
    return {"mode": request.param, "url": valkey.url, "stream": stream, "lease_s": PATIENCE_S}
