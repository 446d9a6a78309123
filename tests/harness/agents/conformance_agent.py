"""The agent of conformance suites; the first word of a message selects its behaviour."""

import asyncio
from collections import defaultdict

from trunkline import TaskContext, agent
from trunkline.core.json_values import update_struct
from trunkline.tasks.agent import Agent
from trunkline.v1 import agent_card_pb2, part_pb2

FILE = b"%PDF-1.4"
FILE_URL = "https://example.com/report.pdf"

_SECRET = agent_card_pb2.AgentSkill(
    id="secret", name="secret", description="For authenticated callers.", tags=["secret"]
)


class ConformanceAgent:
    """The behaviours that ACTS and the TCK name; a test ends the long-running ones."""

    def __init__(self) -> None:
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def release(self, task_id: str) -> None:
        """Let a long-running task complete."""
        self._gates[task_id].set()

    def agent(self) -> Agent:
        """Return the agent."""
        return agent(
            name="conformance",
            description="Behaves as conformance suites request.",
            tags=["conformance"],
            extended_skills=[_SECRET],
            input_modes=["text/plain"],
            output_modes=["text/plain", "application/json", "application/pdf"],
            direct_replies=True,
        )(self._behave)

    async def _behave(self, task: TaskContext) -> None:
        word = task.text.partition(" ")[0]
        if task.turn > 1 and task.text != "done":
            await task.require_input("what else?")
        elif word == "tck-message-response":
            await task.reply("a direct reply")
        elif word == "tck-cancel":
            await task.working("working")
            await asyncio.Event().wait()
        elif word == "tck-long-running":
            await task.working("working")
            await self._gates[task.id].wait()
            await task.artifact("result").append("finished", last=True)
        elif word.startswith(("tck-artifact-", "tck-stream-")):
            await _write(task, word)
        else:
            await _end_turn(task, word)


async def _write(task: TaskContext, word: str) -> None:
    artifact = task.artifact(word)
    if word == "tck-artifact-data":
        await artifact.append(_data("count", 3), last=True)
    elif word == "tck-artifact-file":
        part = part_pb2.Part(raw=FILE, filename="report.pdf", media_type="application/pdf")
        await artifact.append(part, last=True)
    elif word == "tck-artifact-file-url":
        part = part_pb2.Part(url=FILE_URL, filename="report.pdf", media_type="application/pdf")
        await artifact.append(part, last=True)
    elif word == "tck-stream-chunked":
        for number in range(3):
            # Text would be joined into one update.
            await artifact.append(_data("chunk", number), last=number == 2)
    else:
        await task.working("working")
        await artifact.append("a text", last=True)


def _data(name: str, number: int) -> part_pb2.Part:
    part = part_pb2.Part()
    update_struct(part.data.struct_value, {name: number})
    return part


async def _end_turn(task: TaskContext, word: str) -> None:
    if word in ("tck-input-required", "tck-multi-turn"):
        await task.require_input("what else?")
    elif word == "tck-auth-required":
        await task.require_auth("log in")
    elif word == "tck-reject-task":
        await task.reject("not this")
    elif word == "tck-task-failure":
        await task.fail("it failed")
    else:
        await task.artifact("result").append("completed", last=True)
