"""The workflows that ship: a writer proposes, a reviewer scores, and a room gets the result."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from harness.agents.inline_agents import texts
from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import COMMAND, run_in_process
from harness.mesh.messages import MessageMesh, open_message_mesh
from harness.mesh.processes import MeshProcess, free_address, read_line, running_process
from harness.polling import poll
from harness.remote.model_server import ModelServer, call, model_server, refuse
from trunkline import (
    Client,
    ClientAnswer,
    EvaluationRequest,
    EvaluationResult,
    MeshMessage,
    Part,
    TaskContext,
    TaskState,
    agent,
    from_workflow,
)
from trunkline.core.json_values import read_member, struct_json, update_struct
from trunkline.tasks.lifecycle import State
from trunkline_agents.review.agent import review as review_plugin

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT_S: Final = 120.0
# The settings of the reviewer are the rules of the house.
SETTINGS: Final = '[agent.reviewer.options]\nforbidden_terms = ["cheap"]\n'
ORDER: Final = "Write a note for customers: "

ROUND: Final = [
    ("evaluation_request", "review", "reviewer"),
    ("evaluation_result", "reviewer", "review"),
]
FIRST: Final = [("user_message", "review", "writer"), ("proposal", "writer", "review"), *ROUND]
AGAIN: Final = [("evaluation_result", "review", "writer"), ("proposal", "writer", "review"), *ROUND]
TOLD: Final = ("broadcast", "review", "room:main")


class ReviewMesh:
    """`trunkline up` with the workflows, which a test may kill and start again."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.addresses = [
            word for flag in ("--http", "--a2a-grpc", "--mesh") for word in (flag, free_address())
        ]
        self.process: MeshProcess

    async def start(self) -> None:
        command = (
            *COMMAND, "up", *self.addresses, "--data", str(self.folder / "data"),
            "--workflow", "review", "--workflow", "direct-broadcast",
        )  # fmt: skip
        process = await self.stack.enter_async_context(
            running_process(
                *command, cwd=self.folder, environment=only_servers(self.folder, "math")
            )
        )
        ready = await read_line(process, "ready ")
        self.process = MeshProcess(process, ready["http"], ready["mesh"], ready["a2a-grpc"])

    async def kill(self) -> None:
        self.process.process.kill()
        await self.process.process.wait()

    def client(self, agent: str = "review") -> Client:
        return Client(self.process.http_url, agent=agent)

    async def command(self, *words: str) -> Any:
        """Return the JSON that a command prints."""
        words = (*words, "--mesh", self.process.mesh_address, "--json")
        return (await asyncio.to_thread(run_in_process, *words)).json


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ReviewMesh]:
    folder = tmp_path_factory.mktemp("mesh")
    (folder / "trunkline.toml").write_text(SETTINGS)
    async with AsyncExitStack() as stack:
        mesh = ReviewMesh(stack, folder)
        await mesh.start()
        yield mesh


async def ask(mesh: ReviewMesh, text: str, **values: Any) -> ClientAnswer:
    part = Part(media_type="application/json")
    update_struct(part.data.struct_value, {"text": text, **values})
    async with mesh.client() as client:
        return await client.ask(part, timeout_s=LIMIT_S)


async def conversation(mesh: ReviewMesh, answer: ClientAnswer) -> list[MeshMessage]:
    """Return the messages of a run, oldest first."""
    async with mesh.client() as client:
        found = [each async for each in client.history(correlation_id=answer.context_id)]
    return found[::-1]


def routes(messages: Sequence[MeshMessage]) -> list[tuple[str, str, str]]:
    return [(message.type, message.sender, message.recipient) for message in messages]


def text_of(answer: ClientAnswer) -> str:
    assert answer.state is TaskState.COMPLETED, answer.text
    return answer.text


class Spans:
    """The spans of a task's traces, as `trunkline trace --json` prints them."""

    def __init__(self, spans: Sequence[dict[str, Any]]) -> None:
        self.all = spans
        self._by_id = {span["span_id"]: span for span in spans}

    @property
    def traces(self) -> list[str]:
        return list(dict.fromkeys(span["trace_id"] for span in self.all))

    @property
    def roots(self) -> list[str]:
        return [span["name"] for span in self.all if span.get("parent_span_id") not in self._by_id]

    def of_message(self, message_id: str, operation: str) -> dict[str, Any]:
        (found,) = [
            span
            for span in self.all
            if span.get("attributes", {}).get("messaging.message.id") == message_id
            and span["attributes"]["messaging.operation.name"] == operation
        ]
        return found

    def ancestors(self, span: dict[str, Any]) -> list[str]:
        """Return the names of a span's ancestors, its parent first."""
        names = []
        while (parent := self._by_id.get(span.get("parent_span_id", ""))) is not None:
            span = parent
            names.append(span["name"])
        return names


async def test_a_draft_that_fits_is_approved_at_once_and_told_to_listeners(
    mesh: ReviewMesh,
) -> None:
    answer = await ask(
        mesh,
        f"{ORDER}The export takes 12 * 5 = ? seconds.",
        rubric={"max_words": 10, "required_terms": ["export"]},
        room="hall",
    )
    text = "The export takes 12 * 5 = 60 seconds."
    assert text_of(answer) == text
    told = ("broadcast", "review", "room:hall")
    assert routes(await conversation(mesh, answer)) == [*FIRST, told]
    async with (
        mesh.client() as client,
        aclosing(
            client.messages(room="hall", correlation_id=answer.context_id, after="0")
        ) as events,
    ):
        heard = await asyncio.wait_for(anext(events), LIMIT_S)
    assert (heard.type, heard.sender, heard.text) == ("broadcast", "review", text)
    url = f"{mesh.process.http_url.replace('http', 'ws')}/messages/rooms/hall/socket"
    async with asyncio.timeout(LIMIT_S), connect(f"{url}?after=0&membership=none") as socket:
        frames = [json.loads(await socket.recv()) for _ in range(2)]
    assert [list(frame) for frame in frames] == [["joined"], ["message"]]
    assert frames[1]["message"]["envelope"]["text"] == text


async def test_what_the_reviewer_rejects_comes_back_mended_by_its_feedback(
    mesh: ReviewMesh,
) -> None:
    materials = (
        "Our cheap plan is gone. The new plan costs 12 * 5 = 50 euros a year. "
        "Refunds take 10 days. We like it."
    )
    answer = await ask(
        mesh,
        "Tell customers what changes.",
        materials=materials,
        rubric={"max_words": 21, "required_terms": ["refunds"]},
    )
    assert text_of(answer) == (
        "The new plan costs 12 * 5 = 60 euros a year. Refunds take 10 days. We like it."
    )

    messages = await conversation(mesh, answer)
    assert routes(messages) == [*FIRST, *AGAIN, TOLD]
    evaluation = messages[3].payload
    assert isinstance(evaluation, EvaluationResult)
    assert (evaluation.approved, evaluation.score) == (False, 50)
    assert evaluation.feedback == (
        "It must not have 'cheap'.\n12 * 5 = 50 is wrong; write 12 * 5 = 60."
    )

    spans = Spans(await mesh.command("trace", answer.task_id))
    assert (len(spans.traces), spans.roots) == (1, ["SendStreamingMessage"])
    nodes = iter(("assign", "submit", "revise", "submit", "tell"))
    for number, message in enumerate(messages):
        sent = spans.of_message(message.id, "send")
        assert sent["attributes"]["trunkline.message.type"] == message.type
        if message.sender != "review":
            # A reply, below the work on the message that it answers.
            cause = spans.of_message(message.causation_id, "process")
            assert sent["parent_span_id"] == cause["span_id"]
            continue
        assert f"run_node {next(nodes)}" in spans.ancestors(sent), number
        if message.recipient in {"writer", "reviewer"}:
            processed = spans.of_message(message.id, "process")
            assert processed["parent_span_id"] == sent["span_id"]
    asked = [span for span in spans.all if span["name"] == "invoke_agent math"]
    assert all("invoke_agent reviewer" in spans.ancestors(span) for span in asked)
    assert len(asked) == 4


async def test_after_the_last_round_a_person_approves_or_rejects(mesh: ReviewMesh) -> None:
    request = {"rubric": {"min_words": 20}, "rounds": 2, "room": "late"}
    answer = await ask(mesh, "Too short.", **request)
    assert answer.state is TaskState.INPUT_REQUIRED
    (approval,) = answer.approvals
    assert dict(approval.arguments) == {
        "question": "Broadcast this draft to late? The reviewer rejected all drafts.",
        "draft": "Too short.",
        "score": 60,
        "feedback": "It has 2 words; write at least 20.",
    }
    async with mesh.client() as client:
        edited = await client.approve(
            answer.task_id, approval.approval_id, arguments={"draft": "Short, but true."}
        )
    assert text_of(edited) == "Short, but true."
    messages = await conversation(mesh, answer)
    assert routes(messages) == [*FIRST, *AGAIN, ("broadcast", "review", "room:late")]
    assert messages[-1].text == "Short, but true."

    # The turn of the person's answer is a trace of its own, and the view shows both.
    async def read_spans() -> Spans:
        return Spans(await mesh.command("trace", answer.task_id))

    # The last spans arrive after the answer.
    spans = await poll(read_spans, lambda read: len(read.traces) == 2)
    assert [spans.of_message(each.id, "send")["trace_id"] for each in messages] == [
        *[spans.traces[0]] * 8,
        spans.traces[1],
    ]

    again = await ask(mesh, "Too short.", **request)
    async with mesh.client() as client:
        rejected = await client.reject(
            again.task_id, again.approvals[0].approval_id, reason="Say more."
        )
    assert rejected.state is TaskState.REJECTED
    assert rejected.text == "The person rejected it: Say more."
    assert TOLD[0] not in {message.type for message in await conversation(mesh, again)}


async def test_a_draft_is_broadcast_directly_and_a_supervisor_finds_both(
    mesh: ReviewMesh,
) -> None:
    async with mesh.client("direct-broadcast") as client:
        answer = await client.ask("announce to everybody: the kitchen opens at 9")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "the kitchen opens at 9")
    assert routes(await conversation(mesh, answer)) == [
        ("user_message", "direct-broadcast", "writer"),
        ("proposal", "writer", "direct-broadcast"),
        ("broadcast", "direct-broadcast", "room:main"),
    ]
    async with mesh.client("supervisor") as client:
        announced = await client.ask("announce to everybody: lunch is ready")
        reviewed = await client.ask("write and review a note for customers: it rains")
    assert (announced.text, reviewed.text) == ("lunch is ready", "it rains")
    assert ROUND[1] in routes(await conversation(mesh, reviewed))


async def test_runs_of_one_conversation_take_their_own_replies(mesh: ReviewMesh) -> None:
    async with mesh.client() as client, asyncio.TaskGroup() as group:
        runs = [
            group.create_task(client.ask(f"Number {number} rains.", context_id="shared"))
            for number in range(4)
        ]
    assert [text_of(run.result()) for run in runs] == [
        f"Number {number} rains." for number in range(4)
    ]


async def test_the_agents_also_answer_requests(mesh: ReviewMesh) -> None:
    async with mesh.client("reviewer") as client:
        answer = await client.ask("A cheap plan: 2 + 2 = 5, 1 / 0 = 3, 10 / 3 = 3.33.")
    score, *lines = answer.text.split("\n")
    assert score == "25 of 100. It must not have 'cheap'."
    assert lines[0] == "2 + 2 = 5 is wrong; write 2 + 2 = 4."
    assert lines[1].startswith("1 / 0 = 3 can't be checked: It divides by zero")
    assert len(lines) == 2
    async with mesh.client("writer") as client:
        assert (await client.ask(f"{ORDER}2 + 2 = ?")).text == "2 + 2 = 4"


async def test_a_mesh_that_is_killed_goes_on_and_repeats_no_message(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mesh = ReviewMesh(stack, tmp_path)
        await mesh.start()
        async with mesh.client() as client:
            begun = asyncio.Event()

            async def run() -> ClientAnswer:
                async with aclosing(client.stream(f"{ORDER}2 + 2 = 5.")) as stream:
                    async for event in stream:
                        begun.set()
                        if isinstance(event, ClientAnswer):
                            return event
                raise AssertionError("the stream ended")

            async with asyncio.TaskGroup() as group:
                running = group.create_task(run())
                requests = client.messages(type="evaluation_request", after="0")
                async with aclosing(requests):
                    await asyncio.wait_for(anext(requests), LIMIT_S)
                # The reviewer waits for the first answer of the math agent, which loads.
                await mesh.kill()
                await mesh.start()
            answer = running.result()
        assert text_of(answer) == "2 + 2 = 4."
        assert routes(await conversation(mesh, answer)) == [*FIRST, *AGAIN, TOLD]


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@asynccontextmanager
async def reasoning_mesh(
    folder: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[MessageMesh]:
    """A mesh in this process, whose writer and reviewer have a provider's model."""
    for name, value in model.environment.items():
        monkeypatch.setenv(name, value)
    async with open_message_mesh(folder) as messages:
        agents = (from_workflow(review_plugin.file), *review_plugin.agents)
        await messages.mesh.join(*agents, model="openai:any", **settings)
        yield messages


async def test_with_a_model_both_reason_and_the_rubric_still_counts(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script(
        call("give_result", draft="It rains in Oslo."),
        call("give_result", score=95, feedback="Name the day."),
        call("give_result", draft="It rains in Oslo on Monday, umbrella or not."),
        call("give_result", score=190),
        call("give_result", score=90, feedback=""),
    )
    request = {"text": "Warn of rain.", "rubric": {"required_terms": ["umbrella"]}}
    async with reasoning_mesh(tmp_path, model, monkeypatch) as messages:
        ended = await messages.mesh.ask(json.dumps(request), agent="review")
        assert ended.task.status.state == State.TASK_STATE_COMPLETED, ended.task.status
        assert texts(ended) == ["It rains in Oslo on Monday, umbrella or not."]
        sent = await messages.listing(correlation_id=ended.task.context_id)
    results = [
        struct_json(each.envelope.data) for each in sent if each.envelope.sender == "reviewer"
    ]
    # The lower one of the scores of the rubric and of the model.
    assert [result["score"] for result in results] == [75, 90]
    assert results[0]["feedback"] == "It lacks the term 'umbrella'.\nName the day."
    assert model.remaining == 0
    revision = model.requests[2].last
    assert "It rains in Oslo." in revision
    assert "Name the day." in revision
    assert "it has to contain: umbrella" in revision
    assert "score: Input should be less than or equal to 100" in model.requests[4].last


async def test_if_the_model_fails_its_fallback_drafts_and_scores_by_rules(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.decide = lambda _: refuse(400)
    async with reasoning_mesh(tmp_path, model, monkeypatch, fallbacks=("rules",)) as messages:
        ended = await messages.mesh.ask("It rains.", agent="review")
    assert texts(ended) == ["It rains."]
    assert len(model.requests) >= 2


async def test_a_reviewer_of_ones_own_needs_neither_scores_nor_checks(tmp_path: Path) -> None:
    @agent(name="reviewer", description="Reviews texts for the house.")
    async def house(task: TaskContext) -> str:
        return "Send me an evaluation_request."

    @house.on(EvaluationRequest)
    async def evaluate(task: TaskContext, request: EvaluationRequest) -> EvaluationResult:
        is_polite = "please" in request.proposal.lower()
        feedback = None if is_polite else "Say please."
        return EvaluationResult(approved=is_polite, proposal=request.proposal, feedback=feedback)

    async with open_message_mesh(tmp_path) as messages:
        mesh = messages.mesh
        await mesh.join(from_workflow(review_plugin.file), review_plugin.agents[0], house)
        assert texts(await mesh.ask("Please come.", agent="review")) == ["Please come."]
        asking = await mesh.ask("Come.", agent="review")
        (approval,) = asking.approvals
        assert read_member(approval.requested.arguments, "feedback") == "Say please."
        ended = await mesh.ask("approve", agent="review", task_id=asking.task.id)
        assert texts(ended) == ["Come."]
