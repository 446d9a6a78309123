"""The checkpoints of one turn of a reasoning agent. Imports LangGraph, so load it lazily."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from trunkline.agents.reasoning.checkpoint_saver import TurnSaver
from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass(frozen=True, slots=True)
class TurnCheckpoints:
    """The checkpoints of one turn of a task."""

    saver: TurnSaver
    thread_id: str
    state: dict[str, Any] | None
    """The last saved state, if an earlier attempt at the turn saved one."""


@asynccontextmanager
async def open_turn_checkpoints(task: TurnRuntime) -> AsyncIterator[TurnCheckpoints]:
    """Open the checkpoints of a turn, and delete them when the end of the turn is durable.

    The code in the block ends the turn. If it raises, the host ends the task, and the checkpoints
    are deleted after that: a host that takes over a turn without them would begin it anew. Each
    turn has its own LangGraph thread, so a waiting task does not block others. The host that takes
    over the journal finds the checkpoints.
    """
    saver = TurnSaver(task.memory.checkpoints)
    thread_id = f"{task.id}/{task.turn}"
    state = await saver.load_state(thread_id) if task.attempt > 1 else None
    try:
        yield TurnCheckpoints(saver, thread_id, state)
    except BaseException:
        task.on_end(partial(saver.delete_turn, thread_id))
        raise
    await saver.delete_turn(thread_id)
