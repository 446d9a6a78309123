"""An agent elsewhere that answers by a script."""

from collections.abc import AsyncIterator

import pytest

from harness.remote.scripted_agent import ScriptedAgent, scripted_agent


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as agent:
        yield agent
