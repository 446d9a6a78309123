"""The LangGraph threads of a task and of its conversation.

A task runs on a thread of its own, which begins where the conversation `<agent>/<context id>`
stands and is put in its place when the task has completed. So a task that waits holds up nobody,
and one that failed or was canceled leaves nothing behind.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver

from trunkline.identity import ANONYMOUS_ACCOUNT
from trunkline.reasoning.checkpoint_files import CheckpointFile, open_checkpoint_file
from trunkline.reasoning.checkpoint_saver import EventLoopSaver
from trunkline.tasks.context import TaskContext

_FORKED: Final = "fork"
_MESSAGES: Final = "messages"


class ThreadHead(NamedTuple):
    """Where a conversation stands."""

    checkpoint: Checkpoint
    step: int


class ConversationStore(Protocol):
    """Where a conversation is kept."""

    async def load_head(self) -> ThreadHead | None:
        """Return where it stands; None: it has not begun."""
        ...

    async def save_head(self, stand: ThreadHead) -> None:
        """Let it stand somewhere else."""
        ...


@dataclass(slots=True)
class TaskThread:
    """The thread of one task."""

    saver: BaseCheckpointSaver[Any]
    id: str
    is_durable: bool
    """Whether it is still there when its host has died."""
    _conversation: ConversationStore
    base_checkpoint_id: str | None = None
    """The id of the checkpoint that the conversation stood at when the task began."""

    @property
    def config(self) -> RunnableConfig:
        """What LangGraph finds it by."""
        return {"configurable": {"thread_id": self.id, "checkpoint_ns": ""}}

    async def latest_checkpoint(self) -> CheckpointTuple | None:
        """Return the last checkpoint that the graph made of the task; None: it made none."""
        found = await self.saver.aget_tuple(self.config)
        return None if found is None or found.metadata.get("source") == _FORKED else found

    async def fork_conversation(self) -> None:
        """Begin where the conversation stands."""
        stand = await self._conversation.load_head()
        if stand is None:
            return
        self.base_checkpoint_id = stand.checkpoint["id"]
        await _put(self.saver, self.config, stand)

    async def close(self, *, is_completed: bool) -> None:
        """Let the conversation stand where a completed task does, and delete the thread."""
        found = await self.saver.aget_tuple(self.config)
        if is_completed and found is not None:
            now = await self._conversation.load_head()
            step = int(found.metadata.get("step", 0))
            stand = ThreadHead(found.checkpoint, step if now is None else max(step, now.step + 1))
            if now is not None and now.checkpoint["id"] != self.base_checkpoint_id:
                stand = _merged(now, stand)
            await self._conversation.save_head(stand)
        await self.saver.adelete_thread(self.id)


@asynccontextmanager
async def open_task_thread(
    task: TaskContext[Any], own: BaseCheckpointSaver[Any] | None, spare: InMemorySaver
) -> AsyncIterator[TaskThread]:
    """Open the thread of a task, with the checkpointer of the graph's author if there is one.

    Else it lies beside the host's journal; where the host keeps nothing, in `spare`.
    """
    is_anonymous = task.account == ANONYMOUS_ACCOUNT
    account = "" if is_anonymous else f"@{quote(task.account, safe='')}"
    name = f"{task.agent}{account}/{task.context_id}"
    thread_id = f"graph/{task.id}"
    path = task.checkpoint_path
    if own is not None or path is None:
        saver = own or spare
        outlives = not isinstance(saver, InMemorySaver)
        yield TaskThread(saver, thread_id, outlives, _SaverConversation(saver, name))
        return
    with open_checkpoint_file(path) as file:
        conversation = _FileConversation(file, name, task.account)
        yield TaskThread(EventLoopSaver(file.saver.conn), thread_id, True, conversation)


class _SaverConversation:
    """A conversation that is a thread of the author's checkpointer."""

    def __init__(self, saver: BaseCheckpointSaver[Any], name: str) -> None:
        self._saver = saver
        self._config: RunnableConfig = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}

    async def load_head(self) -> ThreadHead | None:
        found = await self._saver.aget_tuple(self._config)
        if found is None:
            return None
        return ThreadHead(found.checkpoint, int(found.metadata.get("step", 0)))

    async def save_head(self, stand: ThreadHead) -> None:
        await _put(self._saver, self._config, stand)


class _FileConversation:
    """A conversation in the checkpoint files: it is looked for in those of all hosts."""

    def __init__(self, file: CheckpointFile, name: str, account: str) -> None:
        self._file = file
        self._thread = (name, account)

    async def load_head(self) -> ThreadHead | None:
        saver = self._file.saver
        found = saver.find_newest_state((saver.conn, *self._file.open_other_files()), *self._thread)
        if found is None or _FORKED not in found[1]:
            return None
        return ThreadHead(found[1][_FORKED], found[0])

    async def save_head(self, stand: ThreadHead) -> None:
        self._file.saver.replace_state(*self._thread, {_FORKED: stand.checkpoint}, stand.step)


async def _put(saver: BaseCheckpointSaver[Any], config: RunnableConfig, stand: ThreadHead) -> None:
    metadata: CheckpointMetadata = {"source": _FORKED, "step": stand.step, "parents": {}}
    versions = stand.checkpoint["channel_versions"]
    await saver.aput(config, stand.checkpoint, metadata, versions)


def _merged(now: ThreadHead, then: ThreadHead) -> ThreadHead:
    """Return where a task's thread stands, behind what others have said in the conversation.

    That is known of messages alone: of what else the state holds, the task's is taken.
    """
    said = now.checkpoint["channel_values"].get(_MESSAGES)
    own = then.checkpoint["channel_values"].get(_MESSAGES)
    if not isinstance(said, list) or not isinstance(own, list):
        return then
    known = {one.id for one in said if isinstance(one, BaseMessage)}
    values = dict(then.checkpoint["channel_values"])
    values[_MESSAGES] = said + [one for one in own if getattr(one, "id", None) not in known]
    checkpoint = then.checkpoint.copy()
    checkpoint["channel_values"] = values
    return ThreadHead(checkpoint, then.step)
