"""Any file is a valid workflow or a list of faults: never a traceback, a hang, or much memory."""

import asyncio
import random
import resource
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from harness.promise_scale import PromiseScale, percentiles
from harness.workflows.files import VALID, mutate
from trunkline import TaskContext, agent, from_workflow
from trunkline.testing import mesh
from trunkline.workflows.builders import dump_workflow
from trunkline.workflows.compiler import compile_workflow
from trunkline.workflows.definition import Workflow
from trunkline.workflows.drawing import draw_mermaid, draw_svg
from trunkline.workflows.reader import parse_source
from trunkline.workflows.validation import validate_source

# Far above the time of any file on a busy machine.
LIMIT_S = 20.0
BATCH = 50
# A batch runs at once, on a machine that may be busy.
LONGEST_RUN = "5s"
LIMIT_BYTES = 200 * 1024 * 1024


async def test_mutated_files_run_or_have_faults(
    scale: PromiseScale, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    for content in VALID:
        assert validate_source(parse_source(content, "w.yaml")).faults == ()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: list[float] = []
    valid = 0
    files = scale.pick(ci=60, prove=10_000)
    # As texts: thousands of models would be most of the memory.
    runnable: list[str] = []
    for _ in range(files):
        name, content = mutate(rng)
        began = time.monotonic()
        validation = validate_source(parse_source(content, name))
        times.append(time.monotonic() - began)
        if validation.workflow is None:
            assert validation.faults, content
            continue
        valid += 1
        # A valid workflow compiles, is drawn, and is read back as what was written.
        workflow = validation.workflow
        compile_workflow(workflow)
        assert draw_mermaid(workflow)
        assert draw_svg(workflow)
        text = dump_workflow(workflow)
        again = validate_source(parse_source(text.encode(), "again.yaml"))
        assert again.workflow == workflow, (content, again.faults)
        runnable.append(text)
    assert max(times) < LIMIT_S
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < LIMIT_BYTES
    assert files / 5 < valid < files
    ended = await run_all(runnable[: scale.pick(ci=10, prove=files)])
    defects = [each for each in caplog.records if each.message == "agent.failed"]
    assert defects == []
    scale.report(
        files=files,
        valid=valid,
        ran=dict(ended),
        time=percentiles(times),
        grown_mib=round(grown / 1024 / 1024),
    )


async def run_all(texts: Sequence[str]) -> Counter[str]:
    """Run valid workflows, which may wait or ask; return the states of their tasks, counted."""

    @agent(name="writer", description="Writes.")
    async def writer(task: TaskContext) -> str:
        return f"a draft of {task.text}"

    @agent(name="reviewer", description="Scores.")
    async def reviewer(task: TaskContext) -> str:
        return '{"score": 90}'

    ended: Counter[str] = Counter()
    for first in range(0, len(texts), BATCH):
        batch = [
            read_runnable(text, f"w-{number}")
            for number, text in enumerate(texts[first : first + BATCH])
        ]
        agents = map(from_workflow, batch)
        async with asyncio.timeout(BATCH * LIMIT_S), mesh(*agents, writer, reviewer) as running:
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(running.ask("hi", agent=workflow.name)) for workflow in batch
                ]
            ended.update(each.result().state.name for each in asked)
    return ended


def read_runnable(text: str, name: str) -> Workflow:
    """Return a valid workflow under another name; it waits for a few seconds at most."""
    workflow = validate_source(parse_source(text.encode(), "w.yaml")).workflow
    assert workflow is not None
    limits = workflow.limits.model_copy(update={"time": LONGEST_RUN})
    return workflow.model_copy(update={"name": name, "limits": limits})
