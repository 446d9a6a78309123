"""Calls of a reply that wait for approval, and their recovery after the host dies."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from harness.agents.inline_agents import NOTHING, message, status_texts, texts
from harness.agents.shop import Orders, shop
from harness.journal.host_death import find_replayed, replay_journal
from harness.journal.opening import open_journal
from trunkline.agents.calls.tool_source import ToolListing
from trunkline.agents.reasoning.continuation import (
    TurnContinuation,
    decode_continuation,
    encode_continuation,
    find_open_calls,
)
from trunkline.agents.reasoning.models import Model
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.core.json_values import read_member
from trunkline.errors import ToolServerUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import parse_header
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.testing import Call, ScriptedModel
from trunkline.v1 import snapshot_pb2, tool_service_pb2

INPUT_REQUIRED = State.TASK_STATE_INPUT_REQUIRED
COMPLETED = State.TASK_STATE_COMPLETED
ORDER = "apples__order"


class HostSession:
    """A process lifetime of a host on a journal, with the user's side of the conversation."""

    def __init__(self, host: TaskHost) -> None:
        self.host = host

    async def begin(self, text: str, task_id: str = "") -> str:
        user_message = message(text, message_id=f"m-{text}", task_id=task_id)
        accepted = await self.host.submit("apples", user_message, NOTHING)
        assert isinstance(accepted, SubmitResult)
        return accepted.task_id

    async def ask(self, text: str, task_id: str = "") -> snapshot_pb2.TaskSnapshot:
        async with asyncio.timeout(30):
            return await self.host.wait_turn(await self.begin(text, task_id))

    async def wait_until_ended(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        async with asyncio.timeout(30):
            while not (await self.host.journal.row(task_id)).is_ended:
                await self.host.journal.wait(task_id, await self.host.journal.head(task_id))
        return await self.host.journal.snapshot(task_id)


@asynccontextmanager
async def open_session(folder: Path, agent: Agent) -> AsyncIterator[HostSession]:
    journal = open_journal(folder / "journal.db")
    try:
        memory = await open_sqlite_memory(folder / "journal.db")
        async with TaskHost(journal, [agent], memory=memory) as host:
            yield HostSession(host)
    finally:
        await journal.close()


def order_call(n: int) -> Call:
    return Call(ORDER, {"n": n, "item": "apples"})


async def test_calls_of_one_reply_wait_together_and_resume_one_by_one(tmp_path: Path) -> None:
    orders = Orders()
    model = ScriptedModel([order_call(1), order_call(2), order_call(3)], "All is done.")
    agent = shop("apples", orders, model=Model.from_chat_model(model))
    async with open_session(tmp_path, agent) as first:
        waiting = await first.ask("order as usual")
        assert waiting.task.status.state == INPUT_REQUIRED, status_texts(waiting)
        assert [
            read_member(approval.requested.arguments, "n") for approval in waiting.approvals
        ] == [1, 2, 3]
        remaining = await first.ask("approve 2", waiting.task.id)
        assert [order["n"] for order in orders.orders] == [2]
        assert remaining.task.status.state == INPUT_REQUIRED
    # Another process handles the remaining answers: the conversation is in the journal.
    async with open_session(tmp_path, agent) as second:
        wait_until_ended = await second.ask("reject 1 no\napprove 3", waiting.task.id)
    assert wait_until_ended.task.status.state == COMPLETED, status_texts(wait_until_ended)
    assert texts(wait_until_ended) == ["All is done."]
    assert [order["n"] for order in orders.orders] == [2, 3]
    last_request = model.requests[-1]
    calls = next(
        entry for entry in reversed(last_request) if isinstance(entry, AIMessage)
    ).tool_calls
    results = {
        entry.tool_call_id: entry.text for entry in last_request if isinstance(entry, ToolMessage)
    }
    assert [results[call["id"] or ""] for call in calls] == [
        "apples/order was not called. It was rejected: no.",
        "Ordered 2 apples.",
        "Ordered 3 apples.",
    ]


@pytest.mark.parametrize("call_id", ["call_0", None])
async def test_calls_with_equal_provider_ids_are_approved_one_by_one(
    tmp_path: Path, call_id: str | None
) -> None:
    def reply_with_calls(*counts: int) -> AIMessage:
        calls = [{"name": ORDER, "args": {"n": n, "item": "apples"}, "id": call_id} for n in counts]
        return AIMessage("", tool_calls=calls)

    orders = Orders()
    model = ScriptedModel(reply_with_calls(1, 2), reply_with_calls(3), "All is done.")
    async with open_session(
        tmp_path, shop("apples", orders, model=Model.from_chat_model(model))
    ) as session:
        waiting = await session.ask("order as usual")
        assert [
            read_member(approval.requested.arguments, "n") for approval in waiting.approvals
        ] == [1, 2]
        more = await session.ask("approve 2\nreject 1", waiting.task.id)
        assert more.task.status.state == INPUT_REQUIRED, status_texts(more)
        assert [order["n"] for order in orders.orders] == [2]
        wait_until_ended = await session.ask("approve", waiting.task.id)
    assert wait_until_ended.task.status.state == COMPLETED, status_texts(wait_until_ended)
    assert [order["n"] for order in orders.orders] == [2, 3]


async def test_an_approval_does_not_cover_a_later_turn_after_a_crash(
    tmp_path: Path,
) -> None:
    original = open_journal(tmp_path / "whole.db")
    first = shop(
        "apples",
        Orders(),
        model=Model.from_chat_model(
            ScriptedModel([order_call(1)], Call("ask_user", {"question": "More?"}), [order_call(1)])
        ),
    )
    async with TaskHost(original, [first]) as host:
        task_id = (await HostSession(host).ask("order one")).task.id
        await HostSession(host).ask("approve", task_id)
        await HostSession(host).ask("once more", task_id)
    events = [
        (parse_header(sealed).first_sequence + at, event)
        for sealed in await original.read(task_id, 0)
        for at, event in enumerate(parse_batch(sealed).events)
    ]
    waiting = [at for at, event in events if event.HasField("approval_requested")]
    folder = tmp_path / "later"
    folder.mkdir()
    async with open_journal(folder / "journal.db") as journal:
        await replay_journal(original, task_id, journal, until=waiting[1] - 1)
    await original.close()
    orders = Orders()
    agent = shop("apples", orders, model=Model.from_chat_model(ScriptedModel([order_call(1)])))
    async with open_session(folder, agent) as later:
        find_replayed(later.host, task_id)
        final = await later.host.wait_turn(task_id)
    assert final.task.status.state == INPUT_REQUIRED, status_texts(final)
    assert orders.orders == []
    assert len(final.approvals) == 2


async def test_a_call_without_approval_is_made_at_once_and_only_once(tmp_path: Path) -> None:
    class TwoTools(Orders):
        """Tools with a second one, which needs approval."""

        async def list_tools(self, servers: Sequence[str]) -> ToolListing:
            """Return both tools."""
            listing = await super().list_tools(servers)
            other = tool_service_pb2.Tool(server="apples", name="pay", needs_approval=True)
            return ToolListing((*listing.tools, other), {})

    source = TwoTools(needs_approval=False)
    model = ScriptedModel([order_call(1), Call("apples__pay", {"n": 5, "item": "euros"})], "Paid.")
    async with open_session(
        tmp_path, shop("apples", source, model=Model.from_chat_model(model))
    ) as session:
        waiting = await session.ask("order and pay")
        assert waiting.task.status.state == INPUT_REQUIRED, status_texts(waiting)
        assert source.orders == [{"n": 1, "item": "apples"}]
        wait_until_ended = await session.ask("approve", waiting.task.id)
    assert wait_until_ended.task.status.state == COMPLETED, status_texts(wait_until_ended)
    assert source.orders == [{"n": 1, "item": "apples"}, {"n": 5, "item": "euros"}]


async def test_the_model_sees_the_edited_arguments_of_its_call(tmp_path: Path) -> None:
    orders = Orders()
    model = ScriptedModel(order_call(10), "Done.")
    async with open_session(
        tmp_path, shop("apples", orders, model=Model.from_chat_model(model))
    ) as session:
        waiting = await session.ask("order many")
        wait_until_ended = await session.ask('edit {"n": 1, "item": "apple"}', waiting.task.id)
    assert wait_until_ended.task.status.state == COMPLETED, status_texts(wait_until_ended)
    assert orders.orders == [{"n": 1, "item": "apple"}]
    reply = next(entry for entry in reversed(model.requests[-1]) if isinstance(entry, AIMessage))
    assert reply.tool_calls[0]["args"] == {"n": 1, "item": "apple"}


async def test_a_shutdown_during_an_approved_call_does_not_suggest_a_retry(
    tmp_path: Path,
) -> None:
    orders = Orders()
    orders.go.clear()
    async with open_session(tmp_path, shop("apples", orders)) as session:
        task_id = (await session.ask("order 3 apples")).task.id
        await session.begin("approve", task_id)
        async with asyncio.timeout(30):
            await orders.began.wait()
        await session.host.drain(0)
        wait_until_ended = await session.wait_until_ended(task_id)
    assert status_texts(wait_until_ended) == (
        "the host shut down while it called apples/order: see whether that was done"
    )


@pytest.mark.parametrize(
    ("is_idempotent", "hint"),
    [
        (False, " It may have taken effect: check before you request it again."),
        (True, ""),
    ],
)
async def test_a_call_whose_server_died_reports_that_it_may_have_taken_effect(
    tmp_path: Path, is_idempotent: bool, hint: str
) -> None:
    orders = Orders(idempotent=is_idempotent)
    orders.error = ToolServerUnavailableError("apples", "it ended during the call")
    async with open_session(tmp_path, shop("apples", orders)) as session:
        task_id = (await session.ask("order 3 apples")).task.id
        wait_until_ended = await session.ask("approve", task_id)
    problem = "apples/order failed: tool server 'apples' is down: it ended during the call."
    assert status_texts(wait_until_ended) == problem + hint


def test_a_continuation_fits_into_an_event() -> None:
    call = {"name": "look", "args": {}, "id": "c-1"}
    other = {"name": "order", "args": {"n": 1}, "id": "c-2"}
    long = "".join(chr(0x4E00 + (7919 * n) % 20_000) for n in range(200_000))
    messages = [
        HumanMessage("look and order"),
        AIMessage("", tool_calls=[call, other]),
        ToolMessage(long, tool_call_id="c-1"),
    ]
    continuation = encode_continuation(TurnContinuation(messages, {"c-2": "j-1.1"}, 0))
    assert len(continuation) <= 64 * 1024
    snapshot = snapshot_pb2.TaskSnapshot(continuation=continuation)
    decoded = decode_continuation(snapshot)
    assert decoded is not None
    assert decoded.messages[2].text.startswith(long[:100])
    assert "left out" in decoded.messages[2].text
    assert [open_call["id"] for open_call in find_open_calls(decoded.messages)] == ["c-2"]
    snapshot.continuation = b"of another version"
    assert decode_continuation(snapshot) is None


async def test_a_crash_at_any_commit_makes_an_approved_call_once_or_reports_it_as_unknown(
    tmp_path: Path,
) -> None:
    original = open_journal(tmp_path / "whole.db")
    first = Orders()
    async with TaskHost(original, [shop("apples", first)]) as host:
        waiting = await HostSession(host).ask("order 3 apples")
        wait_until_ended = await HostSession(host).ask("approve", waiting.task.id)
    task_id = wait_until_ended.task.id
    unknown_count = 0
    headers = [parse_header(sealed) for sealed in await original.read(task_id, 0)]
    # Commits are atomic, and the commits of a task are its batches.
    for at in (header.first_sequence + header.count - 1 for header in headers[:-1]):
        folder = tmp_path / str(at)
        folder.mkdir()
        async with open_journal(folder / "journal.db") as journal:
            await replay_journal(original, task_id, journal, until=at)
            remaining = await journal.snapshot(task_id)
        orders = Orders()
        async with open_session(folder, shop("apples", orders)) as later:
            find_replayed(later.host, task_id)
            final = await later.host.wait_turn(task_id)
            if not any(approval.HasField("answered") for approval in final.approvals):
                assert orders.orders == []
                final = await later.ask("approve", task_id)
            final = await later.wait_until_ended(task_id)
        is_unknown = "it is unknown whether it took effect" in status_texts(final)
        unknown_count += is_unknown
        assert len(final.approvals) == 1
        # A call that started is not made again; a call that had not started is made now.
        assert len(orders.orders) == (not remaining.tool_calls), at
        assert is_unknown == (
            bool(remaining.tool_calls) and not remaining.tool_calls[0].HasField("finished")
        )
        if not is_unknown:
            assert (final.task.status.state, texts(final)[-1]) == (
                COMPLETED,
                "Ordered 3 apples.",
            ), at
    await original.close()
    assert unknown_count


async def test_a_large_number_is_shown_exactly_for_approval_and_reaches_the_tool(
    tmp_path: Path,
) -> None:
    large = 2**53 + 1
    orders = Orders()
    model = ScriptedModel([order_call(large)], "Done.")
    async with open_session(
        tmp_path, shop("apples", orders, model=Model.from_chat_model(model))
    ) as session:
        asking = await session.ask("order many")
        assert f'{{"n": {large}, "item": "apples"}}' in status_texts(asking)
        ended = await session.ask("approve", asking.task.id)
    assert ended.task.status.state == COMPLETED
    assert orders.orders == [{"n": large, "item": "apples"}]
