"""The workload as an agent of Trunkline: `--agent bench.workload_agent:workload`, or run alone."""

from bench.workload import PLAN, Ask, tokens
from trunkline import PlanStep, TaskContext, agent, get_turn_runtime, run


@agent(
    name="workload",
    description="Streams as many tokens as it is asked for.",
    tags=["stream"],
    examples=["stream 500"],
)
async def workload(task: TaskContext) -> None:
    """Answer; a direct call also gets the plan, the notice and the whole text of a supervisor."""
    ask = Ask.parse(task.text)
    if len(get_turn_runtime(task).path) > 1:
        await _answer(task, ask)
        return
    plan = task.plan()
    for token in PLAN:
        await plan.append(token)
    await plan.finish([PlanStep(step_id="step-1", text="stream", agent="workload")])
    async with task.tool("workload"):
        text = await _answer(task, ask)
    await task.artifact("whole").append(text, last=True)


async def _answer(task: TaskContext, ask: Ask) -> str:
    pieces: list[str] = []
    artifact = task.artifact("answer")
    async for token in tokens(ask):
        pieces.append(token)
        await artifact.append(token)
    await artifact.close()
    return "".join(pieces)


if __name__ == "__main__":
    run(workload)
