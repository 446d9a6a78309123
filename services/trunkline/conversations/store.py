"""The interfaces to the checkpoints of turns and to the state of conversations.

Content is serialized: a kind, which names its format, and bytes. All methods raise
JournalUnavailableError if the store can't be read or written, and all writes raise FencedError if
another host has taken over the journal of the turn that writes.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

# LangGraph begins with step -1.
_BEFORE_ALL_STEPS: Final = -2


class ThreadKey(NamedTuple):
    """A LangGraph thread. A subgraph has a namespace of its own in the thread of its graph."""

    thread_id: str
    namespace: str = ""


class StoredWrite(NamedTuple):
    """What a node wrote after a checkpoint, so that the node does not run again."""

    task_id: str
    task_path: str
    position: int
    channel: str
    kind: str
    body: bytes


class StoredCheckpoint(NamedTuple):
    """A checkpoint of a thread. Ids begin with the time on the host that made them."""

    checkpoint_id: str
    parent_id: str | None
    kind: str
    body: bytes
    metadata: bytes
    writes: Sequence[StoredWrite] = ()
    """The writes after it, by task path, task id and position. `add_writes` stores them."""


class CheckpointStore(Protocol):
    """The checkpoints of the turns of one journal. They are deleted with the journal."""

    @property
    def is_durable(self) -> bool:
        """True if the checkpoints survive the death of the process."""
        ...

    async def find(self, thread: ThreadKey, checkpoint_id: str = "") -> StoredCheckpoint | None:
        """Return a checkpoint with its writes, by default the latest one of the thread.

        The latest one has the highest `step` in its metadata, whatever its id: the clock of the
        host that takes over a thread may be behind.
        """
        ...

    async def put(self, thread: ThreadKey, checkpoint: StoredCheckpoint) -> None:
        """Store a checkpoint, in place of an earlier one with its id."""
        ...

    async def add_writes(
        self,
        thread: ThreadKey,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replaces: bool,
    ) -> None:
        """Store writes after a checkpoint.

        Writes with the same task id and position are kept unless the new ones replace them.
        """
        ...

    async def delete(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread, in all of its namespaces."""
        ...


def select_latest(checkpoints: Iterable[tuple[str, bytes | None]]) -> str:
    """Return the id of the latest of checkpoints, or "" without any; they are ids and metadata."""
    return max(((_read_step(metadata), each) for each, metadata in checkpoints), default=(0, ""))[1]


def _read_step(metadata: bytes | None) -> int:
    try:
        return int(json.loads(metadata or b"{}")["step"])
    except (ValueError, TypeError, KeyError):
        # It was torn by a power failure.
        return _BEFORE_ALL_STEPS


class ConversationKey(NamedTuple):
    """The conversation of an account with an agent in a context."""

    agent: str
    context_id: str
    account: str


class StoredState(NamedTuple):
    """The state of a conversation after a number of steps."""

    step: int
    kind: str
    body: bytes


class Turn(NamedTuple):
    """A turn of a conversation."""

    key: ConversationKey
    task_id: str
    number: int
    """The number of the turn within its task."""
    ancestors: tuple[str, ...] = ()
    """The ids of the tasks above its task, from the first task of the request down."""

    @property
    def request(self) -> str:
        """The first task of the request, whose turns in one conversation run together."""
        return self.ancestors[0] if self.ancestors else self.task_id


class Ticket(NamedTuple):
    """The place of an open turn in the order of its conversation."""

    turn: Turn
    place: int
    """Lower places are first. The turns of one request share a place."""
    is_first: bool
    """True if no open turn of the conversation has a lower place. That stays true."""


class ConversationStore(Protocol):
    """The latest states of conversations, and their open turns, which the hosts of a mesh share.

    A state is deleted after 90 days without a change. A ticket belongs to the journal of its turn.
    It stays until it is removed, or until the journal is deleted.
    """

    async def find(self, key: ConversationKey) -> StoredState | None:
        """Return the state of a conversation, or None if it is new."""
        ...

    async def replace(self, key: ConversationKey, state: StoredState, *, known_step: int) -> bool:
        """Replace a state whose step is `known_step`, 0 if there is none.

        Return False if another turn was faster; the state is unchanged then.
        """
        ...

    async def take_ticket(self, turn: Turn) -> Ticket:
        """Return the ticket of a turn, which is made if the turn has none.

        Its place is behind all open turns, or beside those of its request.
        """
        ...

    async def list_tickets(self, key: ConversationKey) -> Sequence[Ticket]:
        """Return the tickets of a conversation, those with the lowest place first."""
        ...

    async def list_tickets_below(self, task_id: str, request: str) -> Sequence[Ticket]:
        """Return the tickets of the tasks that a task of a request called, directly or not."""
        ...

    async def list_own_tickets(self) -> Sequence[Ticket]:
        """Return the tickets of this journal."""
        ...

    async def remove_ticket(self, task_id: str, number: int) -> None:
        """Remove the ticket of a turn, and tickets that earlier turns of the task have left."""
        ...
