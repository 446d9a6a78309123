"""The caller of most tests of A2A."""

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Caller


@pytest.fixture
def caller(bridged: BridgedMesh) -> Caller:
    """A caller of `echo` over JSON-RPC."""
    return bridged.at("/agents/echo")
