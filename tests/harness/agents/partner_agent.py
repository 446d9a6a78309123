"""The agent for third-party clients; the first word of a request selects its behaviour."""

import asyncio

from trunkline import TaskContext, agent
from trunkline.v1 import agent_card_pb2

_SECRET = agent_card_pb2.AgentSkill(
    id="secret", name="secret", description="For authenticated callers.", tags=["secret"]
)


@agent(
    name="partner",
    description="Behaves in every way that a client must handle.",
    tags=["partner"],
    extended_skills=[_SECRET],
    input_modes=["text/plain", "image/png"],
    output_modes=["text/plain", "image/png"],
    direct_replies=True,
)
async def partner(task: TaskContext) -> None:
    word, _, rest = task.text.partition(" ")
    if task.turn > 1 and word not in ("ask", "login", "count"):
        await task.artifact("answer").append(f"turn {task.turn}: {task.text}", last=True)
    elif word == "ask":
        await task.require_input(rest)
    elif word == "login":
        await task.require_auth(rest)
    elif word == "modes":
        await task.artifact("modes").append(" ".join(task.accepted_output_modes), last=True)
    elif word == "message":
        await task.reply(rest)
    elif word == "wait":
        await task.working("waiting")
        await asyncio.Event().wait()
    elif word == "count":
        artifact = task.artifact("count")
        for number in range(1, int(rest) + 1):
            await artifact.append(f"{number} ", last=number == int(rest))
    else:
        artifact = task.artifact("echo")
        parts = task.message.parts
        for part in parts:
            await artifact.append(part if part.raw else part.text, last=part is parts[-1])
