"""Agents whose names and answers the public MCP conformance suite knows, for `trunkline up`."""

from trunkline import TaskContext, agent


@agent(name="test_elicitation")
async def ask_back(task: TaskContext) -> str:
    """Asks its own request as a question."""
    if task.turn > 1:
        return f"User response: {task.text}"
    await task.require_input(task.text)
    return ""
