"""The order of the turns of a conversation, for hosts that die and are taken over at any point."""

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.conversations.store import ConversationKey, Turn

if TYPE_CHECKING:
    from trunkline.conversations.memory import AgentMemory

HOSTS = ("a", "b", "c")
KEY = ConversationKey("math", "context", "account")
hosts = st.sampled_from(HOSTS)


@dataclass
class OpenTurn:
    """A turn that is not over."""

    host: str
    turn: Turn
    runs: bool = False
    """It was the first at some time, so nothing may run beside it."""


class TurnOrderMachine(RuleBasedStateMachine):
    """The hosts of a conversation, beside the list of its open turns in their order."""

    @initialize()
    def open(self) -> None:
        self.stack = ExitStack()
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.count = 0
        self.turns: list[OpenTurn] = []
        self.memories: dict[str, AgentMemory] = {}
        for host in HOSTS:
            (self.folder / f"{host}.db").touch()
            self.serve(host)

    def serve(self, host: str) -> None:
        self.memories[host] = self.runner.run(open_sqlite_memory(self.folder / f"{host}.db"))

    def teardown(self) -> None:
        for memory in self.memories.values():
            self.runner.run(memory.close())
        self.stack.close()

    @rule(host=hosts, request=st.sampled_from(["", "p", "q"]))
    def begin(self, host: str, request: str) -> None:
        """A host of the mesh begins a turn, of a request of its own or beside other turns."""
        if host not in self.memories:
            return
        self.count += 1
        turn = Turn(KEY, f"task-{self.count}", 1, (request,) if request else ())
        ticket = self.runner.run(self.memories[host].order.take_ticket(turn))
        opened = OpenTurn(host, turn, runs=ticket.is_first)
        beside = [i for i, each in enumerate(self.turns) if each.turn.request == turn.request]
        self.turns.insert(beside[-1] + 1 if beside else len(self.turns), opened)

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A turn completes, or one that waits is canceled."""
        ended = data.draw(st.sampled_from(self.turns))
        if ended.host in self.memories:
            self.turns.remove(ended)
            removal = self.memories[ended.host].order.end_turn(ended.turn.task_id)
            assert removal is not None
            self.runner.run(removal)

    @rule(host=hosts)
    def die(self, host: str) -> None:
        """A host dies at any point: its tickets stay."""
        if host in self.memories:
            self.runner.run(self.memories.pop(host).close())

    @rule(host=hosts, data=st.data())
    def take_over(self, host: str, data: st.DataObject) -> None:
        """Its journal is taken over. Some of its turns continue, and others were over."""
        if host in self.memories:
            return
        own = [each for each in self.turns if each.host == host]
        over = data.draw(st.lists(st.sampled_from(own), unique_by=id)) if own else []
        self.serve(host)
        order = self.memories[host].order
        continuing = {each.turn.task_id for each in own if each not in over}
        for removal in order.keep(continuing):
            self.runner.run(removal)
        self.turns = [each for each in self.turns if each not in over]
        for each in own:
            if each not in over and each.runs:
                assert self.runner.run(order.take_ticket(each.turn)).is_first

    @invariant()
    def only_the_first_request_runs(self) -> None:
        if not self.memories:
            return
        store = next(iter(self.memories.values())).conversations
        tickets = self.runner.run(store.list_tickets(KEY))
        assert {ticket.turn for ticket in tickets} == {each.turn for each in self.turns}
        requests = [each.turn.request for each in self.turns]
        first = {ticket.turn for ticket in tickets if ticket.is_first}
        assert first == {each.turn for each in self.turns if each.turn.request == requests[0]}
        for each in self.turns:
            each.runs = each.runs or each.turn in first
        assert len({each.turn.request for each in self.turns if each.runs}) <= 1


TestTurnOrder = TurnOrderMachine.TestCase
TestTurnOrder.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
