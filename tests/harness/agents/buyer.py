"""An agent that asks a person before it buys: `buyer`."""

from trunkline import TaskContext, agent


@agent(name="buyer", description="Buys what a person approves.", resumable=True)
async def buyer(task: TaskContext) -> str | None:
    """Ask for the approval, and tell the decision in the next turn."""
    answer = await task.request_approval("buy", {"what": "a boat"})
    return None if answer is None else f"bought: {answer.decision.name}"
