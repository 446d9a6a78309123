"""Calls of a reply that wait for a person, and what becomes of them when the host dies."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from harness.agents.inline_agents import NOTHING, message, status_texts, texts
from harness.agents.shop import Orders, shop
from harness.journal.host_death import find_replayed, kill_host, replay_journal
from trunkline.errors import ToolServerUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import parse_header
from trunkline.journal.journal import Journal
from trunkline.reasoning import ToolListing
from trunkline.reasoning.continuation import (
    TurnContinuation,
    decode_continuation,
    encode_continuation,
    find_open_calls,
)
from trunkline.reasoning.models import Model
from trunkline.reasoning.tool_source import OnProgress
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.testing import Call, ScriptedModel
from trunkline.v1 import snapshot_pb2, tool_service_pb2

WAITS = State.TASK_STATE_INPUT_REQUIRED
DONE = State.TASK_STATE_COMPLETED
ORDER = "apples__order"


class Life:
    """A life of a host on a journal, and what people say to its agent."""

    def __init__(self, host: TaskHost) -> None:
        self.host = host

    async def begin(self, text: str, task_id: str = "") -> str:
        said = message(text, message_id=f"m-{text}", task_id=task_id)
        accepted = await self.host.submit("apples", said, NOTHING)
        assert isinstance(accepted, SubmitResult)
        return accepted.task_id

    async def ask(self, text: str, task_id: str = "") -> snapshot_pb2.TaskSnapshot:
        async with asyncio.timeout(30):
            return await self.host.wait_turn(await self.begin(text, task_id))

    async def ended(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        async with asyncio.timeout(30):
            while not self.host.journal.row(task_id).is_ended:
                await self.host.journal.wait(task_id, self.host.journal.head(task_id))
        return await self.host.journal.snapshot(task_id)


@asynccontextmanager
async def life(folder: Path, agent: Agent) -> AsyncIterator[Life]:
    journal = Journal.open(folder / "journal.db")
    try:
        async with TaskHost(
            journal, [agent], checkpoint_path=folder / "journal.checkpoints"
        ) as host:
            yield Life(host)
    finally:
        journal.close()


@asynccontextmanager
async def short_life(folder: Path, agent: Agent) -> AsyncIterator[Life]:
    """A life that ends by being killed."""
    host = TaskHost(
        Journal.open(folder / "journal.db"),
        [agent],
        checkpoint_path=folder / "journal.checkpoints",
    )
    await host.__aenter__()
    try:
        yield Life(host)
    finally:
        await kill_host(host)


def order(n: int) -> Call:
    return Call(ORDER, {"n": n, "item": "apples"})


async def test_calls_of_one_reply_wait_together_and_go_on_one_by_one(tmp_path: Path) -> None:
    orders = Orders()
    model = ScriptedModel([order(1), order(2), order(3)], "All is done.")
    agent = shop("apples", orders, model=Model.from_chat_model(model))
    async with life(tmp_path, agent) as first:
        asked = await first.ask("order as usual")
        assert asked.task.status.state == WAITS, status_texts(asked)
        assert [one.requested.arguments["n"] for one in asked.approvals] == [1, 2, 3]
        left = await first.ask("approve 2", asked.task.id)
        assert [one["n"] for one in orders.made] == [2]
        assert left.task.status.state == WAITS
    # The rest is answered in another life: what the model was told lies in the journal.
    async with life(tmp_path, agent) as second:
        ended = await second.ask("reject 1 no\napprove 3", asked.task.id)
    assert ended.task.status.state == DONE, status_texts(ended)
    assert texts(ended) == ["All is done."]
    assert [one["n"] for one in orders.made] == [2, 3]
    shown = model.requests[-1]
    calls = next(one for one in reversed(shown) if isinstance(one, AIMessage)).tool_calls
    results = {one.tool_call_id: one.text for one in shown if isinstance(one, ToolMessage)}
    assert [results[call["id"] or ""] for call in calls] == [
        "apples/order was not called. It was rejected: no.",
        "Ordered 2 apples.",
        "Ordered 3 apples.",
    ]


@pytest.mark.parametrize("call_id", ["call_0", None])
async def test_calls_that_a_provider_names_alike_are_approved_one_by_one(
    tmp_path: Path, call_id: str | None
) -> None:
    def calling(*counts: int) -> AIMessage:
        calls = [{"name": ORDER, "args": {"n": n, "item": "apples"}, "id": call_id} for n in counts]
        return AIMessage("", tool_calls=calls)

    orders = Orders()
    model = ScriptedModel(calling(1, 2), calling(3), "All is done.")
    async with life(tmp_path, shop("apples", orders, model=Model.from_chat_model(model))) as only:
        asked = await only.ask("order as usual")
        assert [one.requested.arguments["n"] for one in asked.approvals] == [1, 2]
        more = await only.ask("approve 2\nreject 1", asked.task.id)
        assert more.task.status.state == WAITS, status_texts(more)
        assert [one["n"] for one in orders.made] == [2]
        ended = await only.ask("approve", asked.task.id)
    assert ended.task.status.state == DONE, status_texts(ended)
    assert [one["n"] for one in orders.made] == [2, 3]


async def test_an_approval_holds_for_no_call_of_a_later_turn_though_a_host_dies(
    tmp_path: Path,
) -> None:
    whole = Journal.open(tmp_path / "whole.db")
    first = shop(
        "apples",
        Orders(),
        model=Model.from_chat_model(
            ScriptedModel([order(1)], Call("ask_user", {"question": "More?"}), [order(1)])
        ),
    )
    async with TaskHost(whole, [first]) as host:
        task_id = (await Life(host).ask("order one")).task.id
        await Life(host).ask("approve", task_id)
        await Life(host).ask("once more", task_id)
    events = [
        (parse_header(sealed).first_sequence + at, event)
        for sealed in whole.read(task_id, 0)
        for at, event in enumerate(parse_batch(sealed).events)
    ]
    asked = [at for at, event in events if event.HasField("approval_requested")]
    folder = tmp_path / "later"
    folder.mkdir()
    with closing(Journal.open(folder / "journal.db")) as journal:
        await replay_journal(whole, task_id, journal, until=asked[1] - 1)
    whole.close()
    orders = Orders()
    again = shop("apples", orders, model=Model.from_chat_model(ScriptedModel([order(1)])))
    async with life(folder, again) as later:
        find_replayed(later.host, task_id)
        now = await later.host.wait_turn(task_id)
    assert now.task.status.state == WAITS, status_texts(now)
    assert orders.made == []
    assert len(now.approvals) == 2


async def test_what_needs_no_approval_is_called_at_once_and_only_then(tmp_path: Path) -> None:
    class Careful(Orders):
        """A shop with a second tool, which needs approval."""

        async def list_tools(self, servers: Sequence[str]) -> ToolListing:
            """Return both."""
            listing = await super().list_tools(servers)
            other = tool_service_pb2.Tool(server="apples", name="pay", needs_approval=True)
            return ToolListing((*listing.tools, other), {})

    source = Careful(needs_approval=False)
    model = ScriptedModel([order(1), Call("apples__pay", {"n": 5, "item": "euros"})], "Paid.")
    async with life(tmp_path, shop("apples", source, model=Model.from_chat_model(model))) as only:
        asked = await only.ask("order and pay")
        assert asked.task.status.state == WAITS, status_texts(asked)
        assert source.made == [{"n": 1, "item": "apples"}]
        ended = await only.ask("approve", asked.task.id)
    assert ended.task.status.state == DONE, status_texts(ended)
    assert source.made == [{"n": 1, "item": "apples"}, {"n": 5, "item": "euros"}]


async def test_the_model_sees_what_a_person_made_of_its_call(tmp_path: Path) -> None:
    orders = Orders()
    model = ScriptedModel(order(10), "Done.")
    async with life(tmp_path, shop("apples", orders, model=Model.from_chat_model(model))) as only:
        asked = await only.ask("order many")
        ended = await only.ask('edit {"n": 1, "item": "apple"}', asked.task.id)
    assert ended.task.status.state == DONE, status_texts(ended)
    assert orders.made == [{"n": 1, "item": "apple"}]
    reply = next(one for one in reversed(model.requests[-1]) if isinstance(one, AIMessage))
    assert reply.tool_calls[0]["args"] == {"n": 1, "item": "apple"}


@pytest.mark.parametrize("needs_approval", [True, False])
async def test_a_call_that_was_cut_off_is_not_made_again_and_that_is_said(
    tmp_path: Path, needs_approval: bool
) -> None:
    orders = Orders(needs_approval=needs_approval)
    agent = shop("apples", orders)
    orders.go.clear()
    async with short_life(tmp_path, agent) as first:
        task_id = await first.begin("order 3 apples")
        if needs_approval:
            await first.host.wait_turn(task_id)
            await first.begin("approve", task_id)
        async with asyncio.timeout(30):
            await orders.began.wait()
    orders.go.set()
    async with life(tmp_path, agent) as second:
        ended = await second.ended(task_id)
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "it is unknown whether it took effect" in status_texts(ended)
    assert len(orders.made) == 1


async def test_a_call_of_a_number_that_the_journal_rounds_is_known_again_after_a_crash(
    tmp_path: Path,
) -> None:
    def reply(messages: Sequence[BaseMessage]) -> str | Call:
        return "I can't tell." if isinstance(messages[-1], ToolMessage) else order(2**53 + 1)

    orders = Orders(needs_approval=False)
    # Asked once before the crash; after it, about the call and its result, or about that alone.
    model = ScriptedModel(reply, reply, reply)
    agent = shop("apples", orders, model=Model.from_chat_model(model))
    orders.go.clear()
    async with short_life(tmp_path, agent) as first:
        task_id = await first.begin("order many")
        async with asyncio.timeout(30):
            await orders.began.wait()
    orders.go.set()
    async with life(tmp_path, agent) as second:
        ended = await second.ended(task_id)
    assert ended.task.status.state == DONE, status_texts(ended)
    assert "it is unknown whether it took effect" in str(model.requests[-1][-1].content)
    assert len(orders.made) == 1


async def test_a_host_that_shuts_down_in_an_approved_call_does_not_say_to_send_it_again(
    tmp_path: Path,
) -> None:
    orders = Orders()
    orders.go.clear()
    async with life(tmp_path, shop("apples", orders)) as only:
        task_id = (await only.ask("order 3 apples")).task.id
        await only.begin("approve", task_id)
        async with asyncio.timeout(30):
            await orders.began.wait()
        await only.host.drain(0)
        ended = await only.ended(task_id)
    assert status_texts(ended) == (
        "the host shut down while it called apples/order: see whether that was done"
    )


@pytest.mark.parametrize(
    ("is_idempotent", "hint"),
    [
        (False, " It may have taken effect: check before you request it again."),
        (True, ""),
    ],
)
async def test_a_call_whose_tool_is_lost_says_that_it_may_have_been_done(
    tmp_path: Path, is_idempotent: bool, hint: str
) -> None:
    orders = Orders(idempotent=is_idempotent)
    orders.trouble = ToolServerUnavailableError("apples", "it ended during the call")
    async with life(tmp_path, shop("apples", orders)) as only:
        task_id = (await only.ask("order 3 apples")).task.id
        ended = await only.ask("approve", task_id)
    problem = "apples/order failed: tool server 'apples' is down: it ended during the call."
    assert status_texts(ended) == problem + hint


async def test_a_call_that_is_harmless_twice_is_made_again(tmp_path: Path) -> None:
    orders = Orders(idempotent=True)
    agent = shop("apples", orders)
    orders.go.clear()
    async with short_life(tmp_path, agent) as first:
        task_id = (await first.ask("order 3 apples")).task.id
        await first.begin("approve", task_id)
        async with asyncio.timeout(30):
            await orders.began.wait()
    orders.go.set()
    async with life(tmp_path, agent) as second:
        ended = await second.ended(task_id)
    assert ended.task.status.state == DONE, status_texts(ended)
    assert texts(ended) == ["Ordered 3 apples."]
    assert len(orders.made) == 2


def test_what_waits_is_kept_within_what_an_event_may_hold() -> None:
    call = {"name": "look", "args": {}, "id": "c-1"}
    other = {"name": "order", "args": {"n": 1}, "id": "c-2"}
    long = "".join(chr(0x4E00 + (7919 * n) % 20_000) for n in range(200_000))
    messages = [
        HumanMessage("look and order"),
        AIMessage("", tool_calls=[call, other]),
        ToolMessage(long, tool_call_id="c-1"),
    ]
    kept = encode_continuation(TurnContinuation(messages, {"c-2": "j-1.1"}, 0))
    assert len(kept) <= 64 * 1024
    snapshot = snapshot_pb2.TaskSnapshot(continuation=kept)
    task = TurnRuntime.__new__(TurnRuntime)
    task.snapshot = snapshot
    found = decode_continuation(task)
    assert found is not None
    assert found.messages[2].text.startswith(long[:100])
    assert "left out" in found.messages[2].text
    assert [one["id"] for one in find_open_calls(found.messages)] == ["c-2"]
    snapshot.continuation = b"of another version"
    assert decode_continuation(task) is None


async def test_wherever_a_host_dies_an_approved_call_is_made_once_or_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    whole = Journal.open(tmp_path / "whole.db")
    first = Orders()
    async with TaskHost(whole, [shop("apples", first)]) as host:
        asked = await Life(host).ask("order 3 apples")
        ended = await Life(host).ask("approve", asked.task.id)
    task_id = ended.task.id
    said_unknown = 0
    headers = [parse_header(sealed) for sealed in whole.read(task_id, 0)]
    # A commit is there, or it is not: those of a task are its batches.
    for at in (header.first_sequence + header.count - 1 for header in headers[:-1]):
        folder = tmp_path / str(at)
        folder.mkdir()
        with closing(Journal.open(folder / "journal.db")) as journal:
            await replay_journal(whole, task_id, journal, until=at)
            left = await journal.snapshot(task_id)
        orders = Orders()
        async with life(folder, shop("apples", orders)) as later:
            find_replayed(later.host, task_id)
            now = await later.host.wait_turn(task_id)
            if not any(one.HasField("answered") for one in now.approvals):
                assert orders.made == []
                now = await later.ask("approve", task_id)
            now = await later.ended(task_id)
        is_unknown = "it is unknown whether it took effect" in status_texts(now)
        said_unknown += is_unknown
        assert len(now.approvals) == 1
        # Once it was begun it is not made again; before that it is made now.
        assert len(orders.made) == (not left.tool_calls), at
        assert is_unknown == (bool(left.tool_calls) and not left.tool_calls[0].HasField("finished"))
        if not is_unknown:
            assert (now.task.status.state, texts(now)[-1]) == (DONE, "Ordered 3 apples."), at
    whole.close()
    assert said_unknown


async def test_a_large_number_goes_to_a_tool_exactly_and_nobody_approves_another_one(
    tmp_path: Path,
) -> None:
    class Seen(Orders):
        """A shop that notes what its calls hold exactly."""

        def __init__(self, **flags: bool) -> None:
            super().__init__(**flags)
            self.exact: list[str] = []

        async def call_tool(
            self, request: tool_service_pb2.CallToolRequest, *, on_progress: OnProgress
        ) -> tool_service_pb2.ToolResult:
            """Order."""
            self.exact.append(request.exact_arguments)
            return await super().call_tool(request, on_progress=on_progress)

    large = 2**53 + 1
    free = Seen(needs_approval=False)
    model = ScriptedModel([order(large), order(2**53 - 1)], "Done.")
    (tmp_path / "free").mkdir()
    async with life(
        tmp_path / "free", shop("apples", free, model=Model.from_chat_model(model))
    ) as only:
        assert (await only.ask("order many")).task.status.state == DONE
    assert sorted(free.exact) == ["", f'{{"n": {large}, "item": "apples"}}']

    asking = Orders()
    model = ScriptedModel([order(large)], "I can't.")
    (tmp_path / "asking").mkdir()
    async with life(
        tmp_path / "asking", shop("apples", asking, model=Model.from_chat_model(model))
    ) as only:
        ended = await only.ask("order many")
    assert (ended.task.status.state, len(ended.approvals), asking.made) == (DONE, 0, [])
    assert "can't be shown exactly" in str(model.requests[-1][-1].content)
