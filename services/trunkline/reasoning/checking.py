"""The node `check` of the reasoning loop: is the reply an answer?"""

from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.runtime import Runtime

from trunkline.reasoning.turn import State, Turn, last_reply, status_of
from trunkline.reasoning.verdict import Status


async def check(state: State, runtime: Runtime[Turn]) -> dict[str, Any]:
    """Judge whether the reply is an answer; if it is none, the model is asked again."""
    turn = runtime.context
    reply = last_reply(state)
    status = status_of(reply)
    text = turn.streamed if status == Status.COMPLETED else reply.text
    if not text.strip() and not turn.parts:
        return {"messages": [SystemMessage("That was no answer. Answer the question.")]}
    return {"verdict": {"status": status.value, "text": text}}
