"""The checks of A2A's conformance formats hold, with all capabilities declared and with none.

The checks are functions in `harness.conformance`. The vectors list the checks of each format. Those
in `OPEN` do not hold yet.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from harness.conformance import access, clients, errors, streams, tasks, webhooks
from harness.conformance.registry import (
    ALL,
    BINDINGS,
    NONE,
    OPEN,
    PATIENCE_S,
    REGISTERED,
    Registered,
    System,
    check_refused_without,
    open_system,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULES = (access, clients, errors, streams, tasks, webhooks)
VECTORS = Path(__file__).parents[1] / "vectors/conformance"
LISTED: Mapping[str, Mapping[str, Any]] = {
    check_id: listed
    for file in ("acts.json", "tck_webhooks.json")
    for check_id, listed in json.loads((VECTORS / file).read_text())["checks"].items()
}


class Case(NamedTuple):
    """The test of some checks against one system over one binding."""

    mode: str
    binding: str
    registered: Registered

    @property
    def name(self) -> str:
        """The id of the case."""
        return f"{self.mode} {self.binding} {' '.join(self.registered.ids)}"


def modes(check_id: str, registered: Registered) -> set[str]:
    """Return the systems that meet the conditions of a check."""
    if registered.scope == "client":
        return {NONE}
    conditions = set(LISTED[check_id].get("capabilities", {}).values())
    has_all = {mode: mode == ALL for mode in (ALL, NONE)}
    if registered.needs:
        del has_all[NONE]
    return {mode for mode, value in has_all.items() if conditions <= {value}}


def bindings(check_id: str, registered: Registered) -> set[str]:
    """Return the bindings that a check is for."""
    if registered.scope != "binding":
        return {"jsonrpc"}
    return set(LISTED[check_id].get("bindings", BINDINGS))


def cases() -> list[Case]:
    """Return the cases; a test of several checks runs where any of them applies.

    A check that holds in both systems runs in the second one over a single binding: that a binding
    keeps its promises does not depend on what the card declares.
    """
    found: list[Case] = []
    for registered in REGISTERED:
        runs_with_all = any(ALL in modes(each, registered) for each in registered.ids)
        found += [
            Case(mode, binding, registered)
            for mode in (ALL, NONE)
            for binding in BINDINGS
            if any(
                mode in modes(check_id, registered) and binding in bindings(check_id, registered)
                for check_id in registered.ids
            )
            and (mode == ALL or not runs_with_all or binding == "jsonrpc")
        ]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def systems(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, System]]:
    async with AsyncExitStack() as stack:
        yield {
            mode: await stack.enter_async_context(open_system(tmp_path_factory.mktemp(mode), mode))
            for mode in (ALL, NONE)
        }


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
async def test_a_check_holds(systems: Mapping[str, System], case: Case) -> None:
    system = systems[case.mode]
    wire = BINDINGS[case.binding](system.mesh, case.registered.version, system.headers)
    check = case.registered.run
    await check(system, wire)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_what_no_card_declares_is_refused(
    systems: Mapping[str, System], binding: str, version: str
) -> None:
    system = systems[NONE]
    wire = BINDINGS[binding](system.mesh, version, system.headers)
    for capability in ("streaming", "pushNotifications", "extendedAgentCard"):
        await check_refused_without(capability, wire)


async def test_a_bridge_without_push_notifications_delivers_none(
    systems: Mapping[str, System],
) -> None:
    bridge = systems[NONE].mesh.bridged.bridge
    async with asyncio.timeout(PATIENCE_S) as limit:
        await bridge.deliver_webhooks()
    assert not limit.expired()


async def test_every_check_of_the_formats_has_a_test_or_is_open() -> None:
    tested = [check_id for registered in REGISTERED for check_id in registered.ids]
    assert sorted([*tested, *OPEN]) == sorted(LISTED)
    levels = [listed["level"] for name, listed in LISTED.items() if not name.startswith("TCK")]
    assert {level: levels.count(level) for level in levels} == {"must": 65, "should": 33, "may": 13}


async def test_the_documentation_names_the_open_checks() -> None:
    text = (Path(__file__).parents[2] / "docs/a2a.md").read_text()
    assert [check_id for check_id in OPEN if check_id not in text] == []
