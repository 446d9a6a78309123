"""The LangGraph threads of tasks and conversations.

A task runs on its own thread, which starts as a copy of the conversation `<agent>/<context id>` and
replaces it when the task completes. So a waiting task blocks no other task, and a failed or
canceled one leaves nothing behind.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver

from trunkline.agents.reasoning.checkpoint_saver import StoreSaver
from trunkline.agents.reasoning.conversation_state import ConversationState
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.tasks.turn_runtime import TurnRuntime

logger = logging.getLogger(__name__)

_FORKED: Final = "fork"
_MESSAGES: Final = "messages"
_MAX_TRIES: Final = 20
# An author's checkpointer takes the highest id for the latest checkpoint. Ids begin with the time
# of the host that made them, and the clock of the next host may be behind.
_LOWEST_ID: Final = "00000000-0000-6000-8000-000000000000"


class ThreadHead(NamedTuple):
    """The latest checkpoint of a conversation."""

    checkpoint: Checkpoint
    step: int


class Conversation(Protocol):
    """The conversation that the thread of a task begins with and replaces."""

    async def load_head(self) -> ThreadHead | None:
        """Return the head, unless the conversation is new."""
        ...

    async def save_head(self, head: ThreadHead) -> bool:
        """Replace the head that was loaded last; return False if another turn has replaced it."""
        ...


@dataclass(slots=True)
class TaskThread:
    """The thread of one task."""

    saver: BaseCheckpointSaver[Any]
    id: str
    is_durable: bool
    """True if it survives the death of its host."""
    _conversation: Conversation
    base_checkpoint_id: str | None = None
    """The conversation's checkpoint when the task began."""

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config that identifies the thread."""
        return {"configurable": {"thread_id": self.id, "checkpoint_ns": ""}}

    async def latest_checkpoint(self) -> CheckpointTuple | None:
        """Return the last checkpoint of the task's own run, or None."""
        latest = await self.saver.aget_tuple(self.config)
        is_own = latest is not None and latest.metadata.get("source") != _FORKED
        return latest if is_own else None

    async def fork_conversation(self) -> None:
        """Start the thread as a copy of the conversation."""
        head = await self._conversation.load_head()
        if head is None:
            return
        self.base_checkpoint_id = head.checkpoint["id"]
        await _write_head(self.saver, self.config, _rename(head, _LOWEST_ID))

    async def save_conversation(self) -> None:
        """Make the head of the thread the head of the conversation.

        Repeating this adds no message.
        """
        latest = await self.saver.aget_tuple(self.config)
        if latest is None:
            return
        for _ in range(_MAX_TRIES):
            current = await self._conversation.load_head()
            if current is not None and current.checkpoint["id"] == latest.checkpoint["id"]:
                return
            step = int(latest.metadata.get("step", 0))
            head = ThreadHead(
                latest.checkpoint, step if current is None else max(step, current.step + 1)
            )
            if current is not None:
                if current.checkpoint["id"] != self.base_checkpoint_id:
                    head = _merge_heads(current, head)
                if head.checkpoint["id"] < current.checkpoint["id"]:
                    head = _rename(head, _next_id(current.checkpoint["id"]))
            if await self._conversation.save_head(head):
                return
        logger.warning("conversation.not_saved", extra={"problem": "its state changes too often"})

    async def delete(self) -> None:
        """Delete the thread, once the task has ended for good."""
        await self.saver.adelete_thread(self.id)


def open_task_thread(
    task: TurnRuntime, own: BaseCheckpointSaver[Any] | None, types: Collection[type]
) -> TaskThread:
    """Return the thread of a task, with the author's checkpointer if there is one.

    Otherwise the thread is in the store of the host. Objects in the store are restored if LangGraph
    or `types` has their type.
    """
    thread_id = f"graph/{task.id}"
    if own is not None:
        is_anonymous = task.account == ANONYMOUS_ACCOUNT
        account = "" if is_anonymous else f"@{quote(task.account, safe='')}"
        conversation = _SaverConversation(own, f"{task.agent}{account}/{task.context_id}")
        return TaskThread(own, thread_id, not isinstance(own, InMemorySaver), conversation)
    checkpoints = task.memory.checkpoints
    saver = StoreSaver(checkpoints, types)
    state = ConversationState(task, types)
    return TaskThread(saver, thread_id, checkpoints.is_durable, _StoredConversation(state))


class _SaverConversation:
    """A conversation in a thread of the author's checkpointer."""

    def __init__(self, saver: BaseCheckpointSaver[Any], name: str) -> None:
        self._saver = saver
        self._config: RunnableConfig = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}

    async def load_head(self) -> ThreadHead | None:
        latest = await self._saver.aget_tuple(self._config)
        if latest is None:
            return None
        return ThreadHead(latest.checkpoint, int(latest.metadata.get("step", 0)))

    async def save_head(self, head: ThreadHead) -> bool:
        await _write_head(self._saver, self._config, head)
        return True


class _StoredConversation:
    """A conversation in the store of all hosts."""

    def __init__(self, state: ConversationState) -> None:
        self._state = state

    async def load_head(self) -> ThreadHead | None:
        checkpoint = (await self._state.read()).get(_FORKED)
        return None if checkpoint is None else ThreadHead(checkpoint, self._state.step)

    async def save_head(self, head: ThreadHead) -> bool:
        return await self._state.replace({_FORKED: head.checkpoint}, step=head.step)


async def _write_head(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, head: ThreadHead
) -> None:
    metadata: CheckpointMetadata = {"source": _FORKED, "step": head.step, "parents": {}}
    versions = head.checkpoint["channel_versions"]
    await saver.aput(config, head.checkpoint, metadata, versions)


def _rename(head: ThreadHead, checkpoint_id: str) -> ThreadHead:
    checkpoint = head.checkpoint.copy()
    checkpoint["id"] = checkpoint_id
    return ThreadHead(checkpoint, head.step)


def _next_id(checkpoint_id: str) -> str:
    return str(UUID(int=UUID(checkpoint_id).int + 1))


def _merge_heads(current: ThreadHead, own_head: ThreadHead) -> ThreadHead:
    """Merge the head of a task's thread with messages that other tasks added meanwhile.

    Only messages can be merged. The task's values replace all other values.
    """
    present = current.checkpoint["channel_values"].get(_MESSAGES)
    own = own_head.checkpoint["channel_values"].get(_MESSAGES)
    if not isinstance(present, list) or not isinstance(own, list):
        return own_head
    known = {message.id for message in present if isinstance(message, BaseMessage)}
    values = dict(own_head.checkpoint["channel_values"])
    values[_MESSAGES] = present + [
        message for message in own if getattr(message, "id", None) not in known
    ]
    checkpoint = own_head.checkpoint.copy()
    checkpoint["channel_values"] = values
    return ThreadHead(checkpoint, own_head.step)
