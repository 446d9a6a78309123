"""A plan is a workflow: valid, in the order of its steps, and run by the graphs of workflows."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.supervisor.plan_workflow import build_plan_workflow
from trunkline.supervisor.references import find_references, format_node_id, write_template
from trunkline.supervisor.steps import Step
from trunkline.v1 import event_pb2
from trunkline.workflows import expressions
from trunkline.workflows.builders import workflow_to_dict
from trunkline.workflows.compiler import compile_branches
from trunkline.workflows.definition import AgentNode, Node
from trunkline.workflows.expressions import Template
from trunkline.workflows.nodes import NodeRun, Result
from trunkline.workflows.validation import load_workflow_dict

Plan = Sequence[tuple[int, ...]]


def build(plan: Plan) -> list[Step]:
    """Return steps, each after those whose numbers are listed."""
    return [
        Step(
            f"step-{number}",
            " ".join(f"{{{each}}}" for each in after) or "begin",
            event_pb2.RouteDecided(agent="math"),
            tuple(f"step-{each}" for each in after),
        )
        for number, after in enumerate(plan, start=1)
    ]


@st.composite
def plans(draw: st.DrawFn) -> list[Step]:
    """Plans of up to eight steps in any order, each after any of those before it."""
    count = draw(st.integers(1, 8))
    plan = [
        tuple(sorted(draw(st.sets(st.integers(1, each))))) if each else () for each in range(count)
    ]
    return draw(st.permutations(build(plan)))


class RecordedRun(NodeRun):
    """Records the nodes that end, and what they read. Those in `held` wait for their event."""

    def __init__(self, held: Mapping[str, asyncio.Event] | None = None) -> None:
        self.news: asyncio.Queue[str] = asyncio.Queue(100)
        self.ended: list[str] = []
        self.read: dict[str, str] = {}
        self._held = held or {}

    async def wait_while_paused(self) -> None:
        pass

    async def start_step(self, node: str) -> None:
        pass

    async def finish_step(
        self, node: str, label: str, *, is_error: bool = False, text: str = ""
    ) -> None:
        pass

    async def run_node(self, node: Node, variables: Mapping[str, Any]) -> Result:
        if not isinstance(node, AgentNode):
            return Result()
        self.read[node.id] = Template.parse(str(node.message)).render(variables)
        if node.id in self._held:
            await self._held[node.id].wait()
        self.ended.append(node.id)
        self.news.put_nowait(node.id)
        return Result(f"= {node.id.removeprefix('step_')}")


async def run(steps: Sequence[Step], recorded: RecordedRun) -> None:
    async with asyncio.TaskGroup() as group:
        for branch in compile_branches(build_plan_workflow(steps)):
            group.create_task(branch.run({}, recorded))


@given(plans())
@settings(max_examples=30)
def test_any_plan_is_a_valid_workflow_whose_steps_run_once_behind_what_they_need(
    steps: list[Step],
) -> None:
    load_workflow_dict(workflow_to_dict(build_plan_workflow(steps)))
    recorded = RecordedRun()

    asyncio.run(run(steps, recorded))

    assert sorted(recorded.ended) == sorted(format_node_id(step.id) for step in steps)
    for step in steps:
        node = format_node_id(step.id)
        for earlier in step.after:
            assert recorded.ended.index(format_node_id(earlier)) < recorded.ended.index(node)
        numbers = [earlier.removeprefix("step-") for earlier in step.after]
        expected = (
            " ".join(numbers) if len(numbers) > 1 else "".join(f"= {each}" for each in numbers)
        )
        assert recorded.read[node] == (expected or "begin")


@pytest.mark.parametrize(
    ("plan", "slow", "ended"),
    [
        ([(), ()], 1, [2]),
        ([(), (1,), (), (3,)], 1, [3, 4]),
        ([(), (1,), (1,), (3,), ()], 2, [1, 3, 4, 5]),
        ([(), (), (1, 2), (3,), (3,)], 4, [1, 2, 3, 5]),
    ],
)
async def test_a_step_waits_for_those_that_it_needs_and_for_no_others(
    plan: Plan, slow: int, ended: list[int]
) -> None:
    release = asyncio.Event()
    recorded = RecordedRun({f"step_{slow}": release})

    async with asyncio.TaskGroup() as group:
        group.create_task(run(build(plan), recorded))
        async with asyncio.timeout(10):
            first = [await recorded.news.get() for _ in ended]
        assert sorted(first) == [f"step_{each}" for each in ended]
        release.set()

    assert len(recorded.ended) == len(plan)


@given(st.text(st.sampled_from("${}a \n"), max_size=12))
def test_the_text_around_references_is_kept_and_needs_no_library(text: str) -> None:
    reference = f"{text}{{1}}."
    values = {"nodes": {"step_1": {"text": "6 x 7 = 42 or so"}}}
    with pytest.MonkeyPatch.context() as patch:
        expressions._import_cel.cache_clear()
        patch.setitem(sys.modules, "cel", None)

        alone = Template.parse(write_template(text, ())).render({})
        template = write_template(reference, find_references(reference, ("step-1",)))
        filled = Template.parse(template).render(values)

    expressions._import_cel.cache_clear()
    assert alone == text
    assert filled == f"{text}42."
