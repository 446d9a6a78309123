"""Fixtures that open a host on a real journal."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.agents.inline_agents import OpenHost
from harness.journal.opening import open_journal
from trunkline.agents import FunctionAgent
from trunkline.core.settings import Settings
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.host import TaskHost
from trunkline.tasks.resources import CancelChild, OtherHosts


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def open_host(journal_path: Path) -> AsyncIterator[OpenHost]:
    async with AsyncExitStack() as stack:

        async def open_(
            *agents: FunctionAgent,
            settings: Settings | None = None,
            cancel_child: CancelChild | None = None,
            budgets: Budgets | None = None,
        ) -> TaskHost:
            journal = open_journal(journal_path)
            stack.push_async_callback(journal.close)
            return await stack.enter_async_context(
                TaskHost(
                    journal,
                    agents,
                    settings=settings,
                    others=OtherHosts(cancel_child),
                    budgets=budgets,
                )
            )

        yield open_
