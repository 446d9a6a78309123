"""The turns of a conversation run one after another, wherever they run."""

from typing import Final

from trunkline.tasks.turn_runtime import TurnRuntime

_WAIT_TEXT: Final = "Waiting for earlier questions of this conversation…"


async def wait_for_earlier_turns(task: TurnRuntime) -> None:
    """Wait until the turns of the conversation that came before this one are over.

    Raises:
        FencedError: another host has the task.
        JournalUnavailableError: the open turns can't be read or written.
    """
    ticket = await task.take_ticket()
    if not ticket.is_first:
        await task.working(_WAIT_TEXT)
        # The earlier turn may need the place of this one.
        async with task.without_place():
            await task.memory.order.wait(ticket)
