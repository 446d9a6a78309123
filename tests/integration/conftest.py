"""Meshes in this process, for tests that need nothing special of theirs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline_agents.echo.agent import echo


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[SmallMesh]:
    """A mesh without agents."""
    async with open_small_mesh(tmp_path) as opened:
        yield opened


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    """A mesh with `echo`, and its bridge."""
    async with open_bridged_mesh(tmp_path) as opened:
        await opened.mesh.join(echo)
        yield opened


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that this process makes."""
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        yield memory
