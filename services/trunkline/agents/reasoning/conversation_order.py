"""The turns of a conversation run one after another, wherever they run."""

from typing import Final

from trunkline.conversations.store import ConversationKey, Turn
from trunkline.tasks.turn_runtime import TurnRuntime

_WAIT_TEXT: Final = "Waiting for earlier questions of this conversation…"


async def wait_for_earlier_turns(task: TurnRuntime) -> None:
    """Wait until the turns of the conversation that came before this one are over.

    The turns of one request run together, because each has its own question. The host ends the
    place of this turn when the turn is over, so a task that waits for its user holds nobody up.

    Raises:
        FencedError: another host has the task.
        JournalUnavailableError: the open turns can't be read or written.
    """
    snapshot = task.snapshot
    ancestors = tuple(each.task_id for each in snapshot.tree.ancestors if each.task_id)
    if not ancestors and snapshot.parent.task_id:
        ancestors = (snapshot.parent.task_id,)
    key = ConversationKey(task.agent, task.context_id, task.account)
    order = task.memory.order
    ticket = await order.begin_turn(Turn(key, task.id, task.number, ancestors))
    if not ticket.is_first:
        await task.working(_WAIT_TEXT)
        # The earlier turn may need the place of this one.
        async with task.without_place():
            await order.wait(ticket)
