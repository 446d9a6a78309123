"""The reasoning loop with a scripted model and scripted tools, on a real task."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call

from harness.agents.shop import ToolsWithoutTasks
from harness.journal.opening import open_journal
from trunkline.agents.calls.tool_source import OnProgress, OnTask, ToolListing
from trunkline.agents.reasoning import ReasoningAgent
from trunkline.agents.reasoning.graph import ReasoningTurn, build_graph, run_turn
from trunkline.agents.reasoning.models import Model
from trunkline.agents.reasoning.models import model as model_module
from trunkline.agents.reasoning.toolbox import Toolbox
from trunkline.agents.reasoning.turn_checkpoints import open_turn_checkpoints
from trunkline.agents.reasoning.turn_result import ResultStatus, TurnResult
from trunkline.errors import StepLimitError, ToolServerUnavailableError
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.testing import ScriptedModel
from trunkline.v1 import (
    agent_card_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    tool_service_pb2,
)

Step = Callable[[Sequence[BaseMessage]], AIMessage]


def scripted(step: Step) -> ScriptedModel:
    """Return a model that answers each request by a function of its messages."""
    return ScriptedModel(*[step] * 20)


@dataclass
class ScriptedTools(ToolsWithoutTasks):
    """Tools that answer by their name; `meet` answers only once two calls of it run."""

    calls: list[str] = field(default_factory=list)
    barrier: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(2))

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        names = ("plain", "meet", "down", "silent")
        tools = tuple(tool_service_pb2.Tool(server=servers[0], name=name) for name in names)
        return ToolListing(tools, {})

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        self.calls.append(request.tool)
        if request.tool == "meet":
            async with asyncio.timeout(20):
                await self.barrier.wait()
        if request.tool == "down":
            raise ToolServerUnavailableError(request.server, "it is gone")
        if request.tool == "silent":
            return tool_service_pb2.ToolResult()
        return tool_service_pb2.ToolResult(content=[part_pb2.Part(text=f"{request.tool} done")])


@dataclass
class LoopAgent(Agent):
    """An agent that runs the loop and nothing else."""

    step: Step
    tools: ScriptedTools = field(default_factory=ScriptedTools)
    checker: Step | None = None
    result: TurnResult | None = None
    error: StepLimitError | None = None
    turn: ReasoningTurn | None = None
    card: agent_card_pb2.AgentCard = field(
        default_factory=lambda: agent_card_pb2.AgentCard(
            name="loop", default_input_modes=["text/plain"]
        )
    )

    def __post_init__(self) -> None:
        self.model = scripted(self.step)

    async def run(self, task: TurnRuntime) -> None:
        listing = await self.tools.list_tools(["s"])
        async with open_turn_checkpoints(task) as checkpoints:
            turn = ReasoningTurn(
                task=task,
                model=Model.from_chat_model(self.model),
                checker=Model.from_chat_model(scripted(self.checker)) if self.checker else None,
                tools=Toolbox(listing.tools),
                source=self.tools,
                checkpoints=checkpoints,
            )
            self.turn = turn
            try:
                self.result = await run_turn(build_graph(), turn, "prompt")
            except StepLimitError as error:
                self.error = error
                raise


async def run(agent: Agent, tmp_path: Path) -> snapshot_pb2.TaskSnapshot:
    journal = open_journal(tmp_path / "journal.db")
    try:
        async with asyncio.timeout(40), TaskHost(journal, [agent]) as host:
            message = message_pb2.Message(
                message_id="m", role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text="question")]
            )
            accepted = await host.submit("loop", message, message_service_pb2.Submission())
            assert isinstance(accepted, SubmitResult)
            return await host.wait_turn(accepted.task_id)
    finally:
        await journal.close()


def reply_with_calls(*names: str) -> AIMessage:
    calls = [tool_call(name=f"s__{name}", args={}, id=f"c{n}") for n, name in enumerate(names)]
    return AIMessage(content="", tool_calls=calls)


def filter_results(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def call_then_answer(*names: str) -> Step:
    """Return a model that calls some tools, then answers with their results."""

    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        results = filter_results(messages)
        return (
            AIMessage(" | ".join(result.text for result in results))
            if results
            else reply_with_calls(*names)
        )

    return step


async def test_all_calls_of_a_turn_run_concurrently(tmp_path: Path) -> None:
    agent = LoopAgent(call_then_answer("meet", "meet"))
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "meet done | meet done")


async def test_a_failed_call_does_not_stop_the_others_and_is_reported_to_the_model(
    tmp_path: Path,
) -> None:
    agent = LoopAgent(call_then_answer("down", "plain", "unknown"))
    snapshot = await run(agent, tmp_path)
    assert agent.result is not None
    down, plain, unknown = agent.result.text.split(" | ")
    assert down.startswith("s/down failed: tool server 's' is down: it is gone.")
    assert plain == "plain done"
    assert unknown == "There is no tool s__unknown."
    assert [call.finished.is_error for call in snapshot.tool_calls] == [True, False]


async def test_a_tool_with_an_empty_result_is_named(tmp_path: Path) -> None:
    agent = LoopAgent(call_then_answer("silent"))
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "s/silent answered with nothing.")


async def test_an_empty_reply_is_retried(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage("now" if len(messages) > 2 else "")

    agent = LoopAgent(step)
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "now")


def reply_with_call(name: str, **arguments: object) -> AIMessage:
    return AIMessage(content="", tool_calls=[tool_call(name=name, args=arguments, id="v")])


async def test_a_model_asks_the_user_by_a_tool(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: reply_with_call("ask_user", question="Which city?"))
    snapshot = await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.INPUT_REQUIRED, "Which city?")
    assert snapshot.task.artifacts == []
    assert {"ask_user", "give_up"} <= set(agent.model.tools)


async def test_a_model_gives_up_by_a_tool(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: reply_with_call("give_up", reason="It is down.", mendable=False))
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.ERROR, "It is down.")


async def test_an_error_that_the_user_can_fix_requires_input(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: reply_with_call("give_up", reason="No such city.", mendable=True))
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.INPUT_REQUIRED, "No such city.")


async def test_a_question_too_long_for_the_model_requires_input(tmp_path: Path) -> None:
    def step(_: Sequence[BaseMessage]) -> AIMessage:
        raise ContextOverflowError("2048 tokens at most")

    card = agent_card_pb2.AgentCard(name="loop", default_input_modes=["text/plain"])
    model = Model.from_chat_model(scripted(step))
    snapshot = await run(
        ReasoningAgent(card, servers=["s"], tools=ScriptedTools(), model=model), tmp_path
    )
    assert snapshot.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert "too long" in snapshot.task.status.message.parts[0].text


async def test_a_rejected_answer_is_discarded_and_replaced(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        feedback = messages[-1].text
        return AIMessage("a better one" if "lacks the city" in feedback else "a bad one")

    def judge(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage("N It lacks the city." if "a bad one" in messages[-1].text else "Y")

    agent = LoopAgent(step, checker=judge)
    snapshot = await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "a better one")
    (artifact,) = snapshot.task.artifacts
    assert "".join(part.text for part in artifact.parts) == "a better one"
    assert snapshot.artifacts[0].closed


async def test_an_answer_is_whole_for_its_readers_while_it_is_checked(tmp_path: Path) -> None:
    """The check asks another model, which may take long."""
    finished: list[bool] = []

    def judge(_: Sequence[BaseMessage]) -> AIMessage:
        assert agent.turn is not None
        finished.append(agent.turn.is_finished)
        return AIMessage("Y")

    agent = LoopAgent(lambda _: AIMessage("an answer"), checker=judge)
    snapshot = await run(agent, tmp_path)
    assert finished == [True]
    assert snapshot.artifacts[0].closed


async def test_repeated_rejections_end_with_the_last_answer(tmp_path: Path) -> None:
    checked: list[str] = []

    def judge(messages: Sequence[BaseMessage]) -> AIMessage:
        checked.append(messages[-1].text)
        return AIMessage("N")

    agent = LoopAgent(lambda _: AIMessage("my best answer"), checker=judge)
    await run(agent, tmp_path)
    # Ten messages: the question, five answers, and feedback on the first four.
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "my best answer")
    assert len(checked) == 4


async def test_an_answer_is_returned_when_the_check_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "FIRST_PAUSE_S", 0.01)

    def judge(_: Sequence[BaseMessage]) -> AIMessage:
        raise OSError("no network")

    agent = LoopAgent(lambda _: AIMessage("an answer"), checker=judge)
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "an answer")


async def test_a_call_with_invalid_arguments_is_reported_to_the_model(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        if len(messages) > 2:
            return AIMessage(" | ".join(message.text for message in messages[3:]))
        broken = invalid_tool_call(name="s__plain", args="x = 1", id="c", error="no JSON")
        return AIMessage(content="", invalid_tool_calls=[broken])

    agent = LoopAgent(step)
    await run(agent, tmp_path)
    assert agent.result is not None
    # After the prompt, the question and the call: the call's result, for providers, and the
    # feedback.
    result, feedback = agent.result.text.split(" | ")
    assert result.endswith("the tool was not called.")
    assert feedback.startswith("The arguments of your call are not a valid JSON object.")


async def test_the_last_message_may_call_no_tools(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        is_last = "last message" in messages[-1].text
        return AIMessage("so far so good") if is_last else reply_with_calls("plain", "plain")

    agent = LoopAgent(step)
    await run(agent, tmp_path)
    assert agent.result == TurnResult(ResultStatus.COMPLETED, "so far so good")
    # The results of one round are one message, so four rounds leave room for an answer.
    assert agent.tools.calls == ["plain"] * 8
    assert agent.model.tools == ["ask_user", "give_up"]


async def test_a_model_that_only_calls_tools_reaches_the_limit(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: reply_with_calls("plain"))
    snapshot = await run(agent, tmp_path)
    assert agent.error is not None
    assert "within 10 messages" in "".join(part.text for part in snapshot.task.status.message.parts)
    # The question, then the model and a tool alternate, and there is no eleventh message.
    assert agent.tools.calls == ["plain"] * 4


async def test_a_model_that_never_answers_reaches_the_limit(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: AIMessage(""))
    await run(agent, tmp_path)
    assert agent.error is not None
