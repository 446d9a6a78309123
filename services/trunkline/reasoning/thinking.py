"""The node `agent` of the reasoning loop: asks the model, and streams what it answers."""

from functools import partial
from typing import Any

from langgraph.runtime import Runtime

from trunkline.errors import TokenLimitError
from trunkline.reasoning.memory.repair import with_own_ids
from trunkline.reasoning.models import note_of, tokens_of
from trunkline.reasoning.turn import State, Turn, check_room
from trunkline.reasoning.verdict import called_verdict


async def think(state: State, runtime: Runtime[Turn]) -> dict[str, Any]:
    """Add the model's reply.

    Raises:
        ModelUnavailableError: no model gave one.
        TokenLimitError: the turn has taken as many tokens as it may.
    """
    turn = runtime.context
    check_room(turn, state)
    limit = turn.model.turn_tokens
    if limit is not None and tokens_of(state["messages"]) >= limit:
        raise TokenLimitError(turn.task.agent, str(limit))
    before = len(turn.streamed)
    reply = await turn.model.ask(
        turn.shown(state),
        tools=turn.specs(state),
        say=turn.say,
        unsay=partial(turn.unsay, before),
    )
    if reply.tool_calls and called_verdict(reply.tool_calls) is None:
        # What it says beside its calls is how it thinks, not what it answers.
        await turn.unsay(before)
    elif note := note_of(reply):
        await turn.say(note)
    reply = with_own_ids(reply, state["messages"])
    return {"messages": [reply], "written": await turn.written()}
