"""`trunkline.Client` against a mesh over every binding and version, also over cut connections."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.grpc_client import open_bridge_grpc, wait_until_open
from harness.agents.fuzz_agents import leaf, texts_of
from harness.agents.partner_agent import partner
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.cutting_relay import Relay, open_relay
from trunkline import (
    ApprovalDecision,
    ArtifactChange,
    Client,
    ClientAnswer,
    ClientEvent,
    Part,
    StatusChange,
    TaskContext,
    TaskState,
    TextChunk,
    agent,
)
from trunkline.a2a_client.agent_card import RemoteCard
from trunkline.a2a_client.client_stream import ClientStream
from trunkline.core.json_values import update_struct
from trunkline.core.settings import Settings
from trunkline.errors import (
    AgentNotFoundError,
    ConfigurationError,
    InvalidArgumentError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNCUT = 1 << 30
WIRES = [
    f"{binding} {version}"
    for binding in ("JSONRPC", "HTTP+JSON", "GRPC")
    for version in ("1.0", "0.3")
]
SEEDS = range(2)


@agent(description="Pays after an approval.", repeatable=True)
async def payer(task: TaskContext) -> None:
    answer = await task.request_approval("bank/pay", {"sum": 7})
    if answer is None:
        return
    artifact = task.artifact("receipt")
    if answer.decision is ApprovalDecision.REJECTED:
        await artifact.append(f"not paid: {answer.reason}", last=True)
        return
    part = Part()
    update_struct(part.data.struct_value, {"paid": answer.arguments.get("sum", 7)})
    await artifact.append(part, last=True)


@agent(description="Counts in red.", tags=["red"])
async def red(_: TaskContext) -> AsyncIterator[str]:
    for number in range(5):
        await asyncio.sleep(0)
        yield f"red {number} "


@agent(description="Counts in blue.", tags=["blue"])
async def blue(_: TaskContext) -> AsyncIterator[str]:
    for number in range(5):
        await asyncio.sleep(0)
        yield f"blue {number} "


@dataclass(frozen=True, slots=True)
class PublicMesh:
    """A mesh whose public addresses are those of relays."""

    bridged: BridgedMesh
    http: Relay
    grpc: Relay

    def client(self, wire: str = "JSONRPC 1.0", *, agent: str = "partner", **more: Any) -> Client:
        """Return a client over one binding and version."""
        binding, version = wire.split()
        return Client(
            f"http://{self.http.address}",
            agent=agent,
            bindings=[binding],
            hosts=["127.0.0.1"],
            versions=[version],
            **more,
        )

    def cut(self, budgets: Iterator[int]) -> None:
        """Cut each further connection after so many bytes of an answer."""
        self.http.budgets = self.grpc.budgets = budgets


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PublicMesh]:
    async with AsyncExitStack() as stack:
        # Requests are traced, so that answers have the ids of their traces.
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        stack.enter_context(spans_in(InMemorySpanExporter(), patch))
        http = await stack.enter_async_context(open_relay(itertools.repeat(UNCUT)))
        grpc = await stack.enter_async_context(open_relay(itertools.repeat(UNCUT)))
        settings = Settings(default_agent="leaf", public_url=f"http://{http.address}")
        folder = tmp_path_factory.mktemp("client")
        bridged = await stack.enter_async_context(open_bridged_mesh(folder, settings))
        edge = await stack.enter_async_context(open_bridge_grpc(bridged))
        http.target, grpc.target = bridged.url.removeprefix("http://"), edge.address
        bridged.bridge.addresses.grpc = grpc.address
        await bridged.mesh.join(partner, leaf, payer, red, blue)
        await bridged.mesh.supervise()
        yield PublicMesh(bridged, http, grpc)


@pytest.fixture
def mesh(served: PublicMesh) -> Iterator[PublicMesh]:
    yield served
    served.cut(itertools.repeat(UNCUT))


async def collect(stream: AsyncIterator[ClientEvent]) -> tuple[list[ClientEvent], ClientAnswer]:
    """Read a stream; return its events, and its last one, which is the answer."""
    async with asyncio.timeout(PATIENCE_S):
        *events, last = [event async for event in stream]
    assert isinstance(last, ClientAnswer)
    if isinstance(stream, ClientStream):
        assert stream.answer is last is await stream.read_answer()
    return events, last


def shown(events: list[ClientEvent], before: str = "") -> str:
    """Return the text that a reader of the events sees."""
    for event in events:
        if isinstance(event, TextChunk):
            before = event.text if event.replaces else before + event.text
    return before


@pytest.mark.parametrize("wire", WIRES)
async def test_every_binding_and_version_streams_chunks_and_the_answer(
    mesh: PublicMesh, wire: str
) -> None:
    async with mesh.client(wire, agent="leaf") as client:
        events, answer = await collect(client.stream("3"))
    expected = texts_of(3)
    assert {each.name: "".join(p.text for p in each.parts) for each in answer.artifacts} == expected
    assert shown(events) == answer.text
    assert answer.state is TaskState.COMPLETED
    assert len(answer.trace_id) == 32
    states = [event.state for event in events if isinstance(event, StatusChange)]
    assert states[-1] is TaskState.COMPLETED
    assert len(states) == len(set(states))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_cut_connection_neither_loses_nor_doubles_text(mesh: PublicMesh, wire: str) -> None:
    async with mesh.client(wire, agent="leaf") as client:
        await client.card()
        before = mesh.http.cuts + mesh.grpc.cuts
        mesh.cut(700 + 150 * number for number in itertools.count())
        for seed in SEEDS:
            events, answer = await collect(client.stream(str(seed)))
            texts = {each.name: "".join(p.text for p in each.parts) for each in answer.artifacts}
            assert texts == texts_of(seed)
            assert shown(events) == answer.text
    assert mesh.http.cuts + mesh.grpc.cuts > before


@pytest.mark.parametrize("wire", ["JSONRPC 1.0", "HTTP+JSON 0.3"])
async def test_without_the_resume_extension_a_cut_adds_what_is_missing(
    mesh: PublicMesh, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(RemoteCard, "supports_resume", property(lambda _: False))
    async with mesh.client(wire, agent="leaf") as client:
        await client.card()
        before = mesh.http.cuts
        mesh.cut(1500 + 250 * number for number in itertools.count())
        for seed in SEEDS:
            events, answer = await collect(client.stream(str(seed)))
            texts = {each.name: "".join(p.text for p in each.parts) for each in answer.artifacts}
            assert texts == texts_of(seed)
            assert shown(events) == answer.text
    assert mesh.http.cuts > before


# The card offers no gRPC 0.3 for an agent with direct replies.
@pytest.mark.parametrize("wire", WIRES[:-1])
async def test_an_answer_at_once_is_that_of_a_stream(mesh: PublicMesh, wire: str) -> None:
    async with mesh.client(wire) as client, asyncio.timeout(PATIENCE_S):
        for text in ("hello", "count 3", "ask Which city?", "message to you"):
            asked, waited = await client.ask(text), await client.ask_at_once(text)
            assert (waited.text, waited.state, waited.outcome) == (
                asked.text,
                asked.state,
                asked.outcome,
            )
            names = [[each.name for each in answer.artifacts] for answer in (asked, waited)]
            assert names[0] == names[1]


@pytest.mark.parametrize("wire", ["JSONRPC 1.0", "HTTP+JSON 1.0"])
async def test_an_answer_at_once_outlives_a_cut_connection(mesh: PublicMesh, wire: str) -> None:
    async with mesh.client(wire, agent="leaf") as client, asyncio.timeout(PATIENCE_S):
        await client.card()
        before = mesh.http.cuts
        mesh.cut(300 + 300 * number for number in itertools.count())
        answer = await client.ask_at_once("2", message_id=(message_id := f"cut {wire}"))
        texts = {each.name: "".join(p.text for p in each.parts) for each in answer.artifacts}
        assert texts == texts_of(2)
        assert mesh.http.cuts > before
        again = await client.ask_at_once("2", message_id=message_id)
        assert again.task_id == answer.task_id


async def test_another_client_resumes_after_the_cursor(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        stream = client.stream("count 200")
        taken: list[ClientEvent] = []
        async for event in stream:
            taken.append(event)
            if shown(taken).endswith(" 20 "):
                break
        await stream.aclose()
    async with mesh.client() as other:
        rest = other.resume(stream.task_id, after=stream.cursor)
        events, answer = await collect(rest)
        assert not any(isinstance(event, TextChunk) and event.replaces for event in events)
        # It began before the cursor, and is shown as a whole.
        changes = [event for event in events if isinstance(event, ArtifactChange)]
        assert [(each.artifact, each.is_complete) for each in changes] == [
            (answer.artifacts[0], True)
        ]
        assert shown(events, shown(taken)) == answer.text
        assert answer.text == "".join(f"{number} " for number in range(1, 201))
        # Nothing follows the last event.
        events, again = await collect(other.resume(stream.task_id, after=rest.cursor))
        assert (shown(events), again.text) == ("", answer.text)


@pytest.mark.parametrize(
    ("wire", "name", "text"),
    [
        ("JSONRPC 1.0", "leaf", "4"),
        ("GRPC 1.0", "leaf", "4"),
        ("HTTP+JSON 0.3", "supervisor", "count in red, and count in blue"),
    ],
)
async def test_from_every_cursor_the_rest_is_the_same(
    mesh: PublicMesh, wire: str, name: str, text: str
) -> None:
    async with mesh.client(wire, agent=name) as client:
        stream = client.stream(text)
        taken: list[ClientEvent] = []
        seen: dict[str, str] = {}
        async for event in stream:
            taken.append(event)
            seen[stream.cursor] = shown(taken)
        assert len(seen) > 5
        for cursor, before in seen.items():
            events, answer = await collect(client.resume(stream.task_id, after=cursor))
            assert shown(events, before) == answer.text, cursor


async def test_the_text_of_a_supervisor_is_shown_once(mesh: PublicMesh) -> None:
    async with mesh.client(agent="supervisor") as client:
        events, answer = await collect(client.stream("count in red, and count in blue"))
    assert answer.outcome == "complete", answer
    expected = [" ".join(f"{name} {number}" for number in range(5)) for name in ("red", "blue")]
    assert [line.strip() for line in answer.text.splitlines()] == expected
    assert shown(events) == answer.text
    assert not any(isinstance(event, TextChunk) and event.replaces for event in events)
    roles = {event.role for event in events if isinstance(event, ArtifactChange)}
    assert roles == {"plan", "notice", "stream", "answer"}


async def test_without_a_cursor_the_first_chunk_replaces_all_text(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        answer = await client.ask("count 5")
        events, again = await collect(client.resume(answer.task_id))
    chunks = [event for event in events if isinstance(event, TextChunk)]
    assert [(chunk.text, chunk.replaces) for chunk in chunks] == [("1 2 3 4 5 ", True)]
    assert again.text == answer.text


async def test_a_question_is_answered_in_the_same_task(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        waiting = await client.ask("ask which one?")
        assert (waiting.state, waiting.text) == (TaskState.INPUT_REQUIRED, "which one?")
        assert waiting.outcome is None
        events, answer = await collect(client.stream("this", task_id=waiting.task_id))
        assert answer.text == shown(events) == "turn 2: this"
        assert answer.task_id == waiting.task_id
        with pytest.raises(TaskEndedError, match="has ended"):
            await client.ask("more", task_id=waiting.task_id)
        follow_up = await client.ask("count 1", context_id=answer.context_id)
        assert follow_up.context_id == answer.context_id


async def test_a_direct_reply_is_an_answer_without_a_task(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        events, answer = await collect(client.stream("message hi"))
    assert (answer.text, answer.task_id, answer.state) == ("hi", "", TaskState.COMPLETED)
    assert shown(events) == "hi"


async def test_a_call_is_approved_edited_and_rejected(mesh: PublicMesh) -> None:
    async with mesh.client(agent="payer") as client:
        waiting = await client.ask("pay")
        (request,) = waiting.approvals
        assert (request.tool, request.arguments, request.path) == (
            "bank/pay",
            {"sum": 7},
            ("payer",),
        )
        paid = await client.approve(waiting.task_id, request.approval_id)
        assert paid.data == [{"paid": 7}]
        waiting = await client.ask("pay")
        edited = await client.approve(
            waiting.task_id, waiting.approvals[0].approval_id, arguments={"sum": 5}
        )
        assert edited.data == [{"paid": 5}]
        waiting = await client.ask("pay")
        rejected = await client.reject(
            waiting.task_id, waiting.approvals[0].approval_id, reason="too much"
        )
        assert rejected.text == "not paid: too much"


async def test_parts_and_files_are_sent_and_received(mesh: PublicMesh) -> None:
    picture = Part(raw=b"\x89PNG", filename="a.png", media_type="image/png")
    async with mesh.client() as client:
        events, answer = await collect(client.stream("see", picture))
    assert [part.raw for part in answer.parts if part.raw] == [b"\x89PNG"]
    assert any(isinstance(event, ArtifactChange) and event.is_complete for event in events)


async def test_a_task_is_canceled_and_read_and_listed(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        stream = client.stream("wait")
        async for event in stream:
            if isinstance(event, StatusChange) and event.text == "waiting":
                break
        canceled = await client.cancel(stream.task_id)
        assert canceled.state is TaskState.CANCELED
        assert canceled.outcome == "failed"
        assert (await client.get(stream.task_id)).state is TaskState.CANCELED
        with pytest.raises(TaskNotCancelableError, match="canceled"):
            await client.cancel(stream.task_id)
        context = canceled.context_id
        listed = [task.task_id async for task in client.list(context_id=context)]
        assert listed == [stream.task_id]
        states = {task.state async for task in client.list(state=TaskState.COMPLETED, page_size=1)}
        assert states <= {TaskState.COMPLETED}


@pytest.mark.parametrize("wire", ["HTTP+JSON 1.0", "GRPC 1.0"])
async def test_every_binding_of_1_0_lists_tasks(mesh: PublicMesh, wire: str) -> None:
    async with mesh.client(wire) as client:
        answer = await client.ask("count 1")
        listed = client.list(context_id=answer.context_id)
        assert [task.task_id async for task in listed] == [answer.task_id]


async def test_errors_say_what_to_do(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        with pytest.raises(TaskNotFoundError, match="no task 'nothing'"):
            await client.get("nothing")
        with pytest.raises(TaskNotFoundError):
            await client.resume("nothing", after="").read_answer()
        with pytest.raises(UnsupportedOperationError, match="not been read to its end"):
            str(client.resume("nothing", after="").answer)
        with pytest.raises(InvalidArgumentError, match="empty"):
            await client.ask()
        with pytest.raises(InvalidArgumentError, match="no JSON"):
            await client.ask({"set": {1}})
    async with mesh.client("JSONRPC 0.3") as client:
        with pytest.raises(UnsupportedOperationError, match=r"0\.3"):
            await anext(client.list())
    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(PeerUnavailableError, match="nothing answers"):
            await client.ask("hi")
    with pytest.raises(ConfigurationError, match="not a URL"):
        Client("localhost:8000")
    with pytest.raises(ConfigurationError, match="header"):
        Client("http://127.0.0.1:1", token="a\nb")
    with pytest.raises(ConfigurationError, match=r"bindings.*'http'.*JSONRPC, HTTP\+JSON, GRPC"):
        Client("http://127.0.0.1:1", bindings=["http"])
    with pytest.raises(ConfigurationError, match=r"versions.*'2'.*1\.0, 0\.3"):
        Client("http://127.0.0.1:1", versions=["2"])


async def test_an_unknown_agent_is_not_answered_by_the_default_one(mesh: PublicMesh) -> None:
    async with mesh.client(agent="nobody") as client:
        with pytest.raises(AgentNotFoundError, match="'nobody'"):
            await client.ask("count 3")


async def test_an_interface_that_the_caller_excluded_is_no_fault_of_the_agent(
    mesh: PublicMesh,
) -> None:
    url = f"http://{mesh.http.address}/agents/partner"
    async with Client(url, bindings=["GRPC"], versions=["0.3"], hosts=["127.0.0.1"]) as client:
        with pytest.raises(
            ConfigurationError, match=r"JSONRPC 1\.0.*allowed are bindings GRPC; versions 0\.3"
        ):
            await client.ask("count 3")


async def test_calls_before_and_after_the_block_say_so(mesh: PublicMesh) -> None:
    client = mesh.client()
    with pytest.raises(UnsupportedOperationError, match="async with"):
        await anext(client.stream("count 1"))
    with pytest.raises(UnsupportedOperationError, match="async with"):
        await client.ask("count 1")
    async with client:
        pass
    with pytest.raises(UnsupportedOperationError, match="async with"):
        await anext(client.stream("count 1"))
    with pytest.raises(UnsupportedOperationError, match="async with"):
        await client.ask("count 1")


async def test_a_turn_ends_at_its_deadline(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        answer = await client.ask("wait", timeout_s=0.5)
        assert answer.state is TaskState.FAILED
        assert "deadline" in answer.text or "time" in answer.text


async def test_a_repeated_message_id_attaches_to_its_task(mesh: PublicMesh) -> None:
    async with mesh.client() as client:
        first = await client.ask("count 2", message_id="once")
        second = await client.ask("count 2", message_id="once")
    assert first.task_id == second.task_id
    assert first.text == second.text == "1 2 "


async def test_leaving_a_stream_closes_its_connection_and_not_the_task(mesh: PublicMesh) -> None:
    async with mesh.client("GRPC 1.0") as client:
        stream = client.stream("wait")
        async for event in stream:
            if isinstance(event, StatusChange) and event.text == "waiting":
                break
        task_id = stream.task_id
        assert len(mesh.bridged.bridge.grpc) == 1
        del stream
        await wait_until_open(mesh.bridged.bridge.grpc, 0)
        assert (await client.get(task_id)).state is TaskState.WORKING
        await client.cancel(task_id)


async def test_a_reader_in_another_task_learns_that_the_client_was_closed(mesh: PublicMesh) -> None:
    async with asyncio.TaskGroup() as group:
        async with mesh.client() as client:
            stream = client.stream("wait")
            async for event in stream:
                if isinstance(event, StatusChange) and event.text == "waiting":
                    break
            reading = group.create_task(_error_of(stream))
            await client.get(stream.task_id)
        error = await reading
    assert isinstance(error, PeerUnavailableError)
    async with mesh.client() as client:
        await client.cancel(stream.task_id)


async def _error_of(stream: AsyncIterator[ClientEvent]) -> Exception | None:
    try:
        async for _ in stream:
            pass
    except PeerUnavailableError as error:
        return error
    return None


async def test_errors_of_the_block_are_not_wrapped(mesh: PublicMesh) -> None:
    async def fail() -> None:
        async with mesh.client() as client:
            await client.card()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
