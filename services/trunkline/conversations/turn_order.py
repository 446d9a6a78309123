"""The order of the turns of a conversation, over all hosts.

A host takes the ticket of a turn before it stores the message that opens the turn. So a message of
which anyone was told, or that is found when it is sent again, has its place before all later ones.
The turns of the lowest place run, and the host removes the ticket of a turn that is over, or of a
message that was refused. If a host dies, its tickets stay, so a turn that is taken over keeps its
place, and the takeover removes tickets without a turn. Within a process, the removal of a ticket
wakes the next turn. The turns of other processes ask the store, at most once a second and only
while they wait.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from trunkline.conversations.store import ConversationKey, ConversationStore, Ticket, Turn
from trunkline.core.backoff import Backoff
from trunkline.errors import FencedError, JournalUnavailableError

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
# The pause of a turn that waits for another turn of its process, which wakes it.
_LOCAL_PAUSE_S: Final = 5.0
# Two requests that wait for each other are rare, so they are not looked for at each pause.
_DEADLOCK_CHECK_S: Final = 1.0


@dataclass(slots=True)
class _Conversation:
    """The turns of this process in one conversation."""

    places: dict[str, int] = field(default_factory=dict)
    """The places of the turns, by task id."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set and replaced when a turn is over."""


class LocalTurns:
    """The turns with tickets of one process, which the journals of the process share."""

    def __init__(self) -> None:
        self._conversations: dict[ConversationKey, _Conversation] = {}

    def add(self, ticket: Ticket) -> None:
        """Note a ticket."""
        conversation = self._conversations.setdefault(ticket.turn.key, _Conversation())
        conversation.places[ticket.turn.task_id] = ticket.place

    def discard(self, turn: Turn) -> None:
        """Forget a turn that is over, and wake the waiting turns of its conversation."""
        conversation = self._conversations.get(turn.key)
        if conversation is None:
            return
        conversation.places.pop(turn.task_id, None)
        changed, conversation.changed = conversation.changed, asyncio.Event()
        changed.set()
        if not conversation.places:
            del self._conversations[turn.key]

    async def wait(self, ticket: Ticket, pause_s: float) -> None:
        """Wait until a turn of the conversation is over, or until it is time to ask the store."""
        conversation = self._conversations[ticket.turn.key]
        is_next = ticket.place == min(conversation.places.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s if is_next else _LOCAL_PAUSE_S):
                await conversation.changed.wait()


class TurnOrder:
    """Orders the turns of the tasks of one journal among the turns of all hosts."""

    def __init__(self, store: ConversationStore, local: LocalTurns) -> None:
        self._store = store
        self._local = local
        # The turns that may have a ticket, by task id.
        self._turns: dict[str, Turn] = {}
        # The tickets of the turns that are the first of their conversation, by task id.
        self._first: dict[str, Ticket] = {}
        # A removal waits for the taking of its ticket, which a canceled turn does not stop.
        self._taking: dict[Turn, asyncio.Task[Ticket]] = {}
        # A turn that is tried again waits for the removal of the ticket of its first try.
        self._removing: dict[Turn, asyncio.Event] = {}
        self._has_left_tickets = False
        self._closing = asyncio.Event()

    async def load(self) -> None:
        """Read the tickets that the last owner of the journal left, before it is served.

        Raises:
            JournalUnavailableError: the store can't be read.
        """
        for ticket in await self._store.list_own_tickets():
            self._note(ticket)

    def keep(self, running: Collection[str]) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the removals of all tickets but those of `running` tasks, which continue."""
        removals = [self.end_turn(task_id) for task_id in self._turns.keys() - set(running)]
        return [removal for removal in removals if removal is not None]

    async def take_ticket(self, turn: Turn) -> Ticket:
        """Return the ticket of a turn, which may run at once if its ticket is the first.

        A turn without a ticket gets one. Repeating this is harmless.

        Raises:
            FencedError: another host has the journal.
            JournalUnavailableError: the store can't be written.
        """
        first = self._first.get(turn.task_id)
        if first is not None and first.turn == turn:
            return first
        self._turns[turn.task_id] = turn
        taking = self._taking.get(turn)
        if taking is None:
            # Only the store's time limit ends it: a ticket that is stored unseen could not be
            # removed.
            taking = asyncio.create_task(self._take(turn))  # noqa: TID251
            self._taking[turn] = taking
            taking.add_done_callback(partial(self._on_taken, turn))
        return await asyncio.shield(taking)

    async def wait(self, ticket: Ticket) -> None:
        """Wait until the turn may run. Cancellation and deadlines end the wait, not the ticket."""
        backoff = Backoff(first_s=_FIRST_PAUSE_S, limit_s=_LONGEST_PAUSE_S)
        checked_at_s = time.monotonic()
        while True:
            await self._local.wait(ticket, backoff.next_s())
            try:
                ahead = await self._list_ahead(ticket)
                if ahead is None:
                    # The file of the tickets was lost.
                    self._first.pop(ticket.turn.task_id, None)
                    ticket = await self.take_ticket(ticket.turn)
                elif not ahead:
                    return
                if time.monotonic() < checked_at_s + _DEADLOCK_CHECK_S:
                    continue
                checked_at_s = time.monotonic()
                if await self._is_in_deadlock(ticket):
                    extra = {"task_id": ticket.turn.task_id}
                    logger.warning("conversation.not_waited_for", extra=extra)
                    return
            except JournalUnavailableError as error:
                logger.warning("conversation.not_read", extra={"problem": error.problem})

    def end_turn(self, task_id: str) -> Coroutine[Any, Any, None] | None:
        """Return the removal of the ticket of a task, if it may have one, for the caller to run.

        The turn is over, and does not continue on another host.
        """
        self._first.pop(task_id, None)
        turn = self._turns.pop(task_id, None)
        return None if turn is None else self._remove(turn)

    def close(self) -> None:
        """Give up removals that fail, because the next owner of the journal removes the tickets."""
        self._closing.set()
        for turn in self._turns.values():
            self._local.discard(turn)

    @property
    def has_left_tickets(self) -> bool:
        """Return whether tickets of turns that are over could not be removed before the close."""
        return self._has_left_tickets

    async def _take(self, turn: Turn) -> Ticket:
        if removing := self._removing.get(turn):
            await removing.wait()
        ticket = await self._store.take_ticket(turn)
        if self._turns.get(turn.task_id) == turn:
            self._note(ticket)
        return ticket

    def _on_taken(self, turn: Turn, taking: asyncio.Task[Ticket]) -> None:
        del self._taking[turn]
        if not taking.cancelled():
            taking.exception()  # Marks it as retrieved: the turn may have been canceled.

    def _note(self, ticket: Ticket) -> None:
        self._turns[ticket.turn.task_id] = ticket.turn
        if ticket.is_first:
            self._first[ticket.turn.task_id] = ticket
        self._local.add(ticket)

    async def _remove(self, turn: Turn) -> None:
        try:
            if taking := self._taking.get(turn):
                await asyncio.wait([taking])
            # The same turn may have been tried again.
            if self._turns.get(turn.task_id) != turn:
                removed = self._removing[turn] = asyncio.Event()
                try:
                    await self._remove_ticket(turn)
                finally:
                    del self._removing[turn]
                    removed.set()
        finally:
            # A later turn of the task may have a ticket by now.
            if turn.task_id not in self._turns:
                self._local.discard(turn)

    async def _remove_ticket(self, turn: Turn) -> None:
        backoff = Backoff(limit_s=_LONGEST_PAUSE_S)
        # A turn that is tried again needs its ticket.
        while self._turns.get(turn.task_id) != turn:
            try:
                await self._store.remove_ticket(turn.task_id, turn.number)
            except FencedError:
                return
            except JournalUnavailableError as error:
                logger.warning("conversation.not_ended", extra={"problem": error.problem})
            else:
                return
            if self._closing.is_set():
                self._has_left_tickets = True
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._closing.wait()

    async def _list_ahead(self, ticket: Ticket) -> list[Ticket] | None:
        """Return the tickets with lower places, or None if the ticket itself is gone."""
        tickets = await self._store.list_tickets(ticket.turn.key)
        if all(other.turn.task_id != ticket.turn.task_id for other in tickets):
            return None
        return [other for other in tickets if other.place < ticket.place]

    async def _is_in_deadlock(self, ticket: Ticket) -> bool:
        """Return whether the turn waits for a turn that waits for it.

        That happens if two agents call each other for two requests of one context. A turn ahead
        waits if a task below its task waits.
        """
        waiting, seen = [ticket], {ticket.turn.task_id}
        while waiting:
            for ahead in await self._list_ahead(waiting.pop()) or ():
                if ahead.turn.task_id in ticket.turn.ancestors:
                    return True
                if ahead.turn.task_id in seen:
                    continue
                seen.add(ahead.turn.task_id)
                waiting += await self._store.list_tickets_below(
                    ahead.turn.task_id, ahead.turn.request
                )
        return False
