"""The reasoning loop with a scripted model and scripted tools, on a real task."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr

from trunkline.errors import StepLimitError, ToolServerUnavailableError
from trunkline.journal.journal import Journal
from trunkline.reasoning import ReasoningAgent, ToolListing
from trunkline.reasoning.graph import ReasoningTurn, build_graph, run_turn
from trunkline.reasoning.models import Model
from trunkline.reasoning.tool_source import OnProgress
from trunkline.reasoning.toolbox import Toolbox
from trunkline.reasoning.turn_result import ResultStatus, TurnResult
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import (
    agent_card_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    tool_service_pb2,
)

Step = Callable[[Sequence[BaseMessage]], AIMessage]


class ScriptedModel(BaseChatModel):
    """Answers by a function of what it is shown; streams in words, as providers do."""

    _step: Step = PrivateAttr()
    _offered: list[list[str]] = PrivateAttr(default_factory=list)

    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step

    @property
    def offered(self) -> list[list[str]]:
        """The tools that it could call, request by request."""
        return self._offered

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: object
    ) -> Runnable[LanguageModelInput, AIMessage]:
        self._offered.append([tool["function"]["name"] for tool in tools])
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._step(messages))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = self._step(messages)
        calls = [
            tool_call_chunk(
                name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index
            )
            for index, call in enumerate(reply.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=calls))
        for index, call in enumerate(reply.invalid_tool_calls):
            chunk = tool_call_chunk(
                name=call["name"], args=call["args"], id=call["id"], index=index
            )
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
        for word in reply.text.split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))


@dataclass
class ScriptedTools:
    """Tools that answer by their name; `meet` does so only once two calls of it are under way."""

    called: list[str] = field(default_factory=list)
    both: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(2))

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        names = ("plain", "meet", "down", "silent")
        tools = tuple(tool_service_pb2.Tool(server=servers[0], name=name) for name in names)
        return ToolListing(tools, {})

    async def call_tool(
        self, request: tool_service_pb2.CallToolRequest, *, on_progress: OnProgress
    ) -> tool_service_pb2.ToolResult:
        self.called.append(request.tool)
        if request.tool == "meet":
            async with asyncio.timeout(20):
                await self.both.wait()
        if request.tool == "down":
            raise ToolServerUnavailableError(request.server, "it is gone")
        if request.tool == "silent":
            return tool_service_pb2.ToolResult()
        return tool_service_pb2.ToolResult(content=[part_pb2.Part(text=f"{request.tool} done")])


@dataclass
class LoopAgent:
    """An agent that runs nothing but the loop."""

    step: Step
    tools: ScriptedTools = field(default_factory=ScriptedTools)
    checker: Step | None = None
    verdict: TurnResult | None = None
    error: StepLimitError | None = None
    card: agent_card_pb2.AgentCard = field(
        default_factory=lambda: agent_card_pb2.AgentCard(
            name="loop", default_input_modes=["text/plain"]
        )
    )
    direct_replies = False
    repeatable = False
    resumable = False
    timeout_s: float | None = None
    routable = True
    extended_skills = ()
    concurrency = None

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.step)

    async def run(self, task: TurnRuntime) -> None:
        listing = await self.tools.list_tools(["s"])
        turn = ReasoningTurn(
            task=task,
            model=Model.from_chat_model(self.model),
            checker=Model.from_chat_model(ScriptedModel(self.checker)) if self.checker else None,
            tools=Toolbox(listing.tools),
            source=self.tools,
        )
        try:
            self.verdict = await run_turn(build_graph(), turn, "prompt")
        except StepLimitError as error:
            self.error = error
            raise


async def run(agent: Agent, tmp_path: Path) -> snapshot_pb2.TaskSnapshot:
    journal = Journal.open(tmp_path / "journal.db")
    try:
        async with asyncio.timeout(40), TaskHost(journal, [agent]) as host:
            message = message_pb2.Message(
                message_id="m", role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text="question")]
            )
            accepted = await host.submit("loop", message, message_service_pb2.Submission())
            assert isinstance(accepted, SubmitResult)
            return await host.wait_turn(accepted.task_id)
    finally:
        journal.close()


def calling(*names: str) -> AIMessage:
    calls = [tool_call(name=f"s__{name}", args={}, id=f"c{n}") for n, name in enumerate(names)]
    return AIMessage(content="", tool_calls=calls)


def results_of(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def call_then_tell(*names: str) -> Step:
    """A model that calls some tools, then says what they have answered."""

    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        results = results_of(messages)
        return AIMessage(" | ".join(one.text for one in results)) if results else calling(*names)

    return step


async def test_a_verdict_says_exactly_what_was_streamed(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: AIMessage("an answer without tools"))
    end = await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "an answer without tools ")
    assert end.task.artifacts[0].parts[0].text == "an answer without tools "
    assert end.artifacts[0].closed


async def test_all_calls_of_a_turn_run_at_once(tmp_path: Path) -> None:
    agent = LoopAgent(call_then_tell("meet", "meet"))
    await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "meet done | meet done ")


async def test_a_call_that_fails_leaves_the_others_and_is_told_to_the_model(tmp_path: Path) -> None:
    agent = LoopAgent(call_then_tell("down", "plain", "unknown"))
    end = await run(agent, tmp_path)
    assert agent.verdict is not None
    down, plain, unknown = agent.verdict.text.split(" | ")
    assert down.startswith("s/down failed: tool server 's' is down: it is gone.")
    assert plain == "plain done"
    assert unknown == "There is no tool s__unknown. "
    assert [call.finished.is_error for call in end.tool_calls] == [True, False]


async def test_a_tool_that_answers_nothing_is_named(tmp_path: Path) -> None:
    agent = LoopAgent(call_then_tell("silent"))
    await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "s/silent answered with nothing. ")


async def test_an_empty_reply_is_asked_for_again(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage("now" if len(messages) > 2 else "")

    agent = LoopAgent(step)
    await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "now ")


def deciding(name: str, **arguments: object) -> AIMessage:
    return AIMessage(content="", tool_calls=[tool_call(name=name, args=arguments, id="v")])


async def test_a_model_asks_the_user_by_a_tool(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: deciding("ask_user", question="Which city?"))
    end = await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.INPUT_REQUIRED, "Which city?")
    assert end.task.artifacts == []
    assert {"ask_user", "give_up"} <= set(agent.model.offered[0])


async def test_a_model_gives_up_by_a_tool(tmp_path: Path) -> None:
    hopeless = LoopAgent(lambda _: deciding("give_up", reason="It is down.", mendable=False))
    await run(hopeless, tmp_path)
    assert hopeless.verdict == TurnResult(ResultStatus.ERROR, "It is down.")


async def test_an_error_that_the_user_can_mend_asks_back(tmp_path: Path) -> None:
    mendable = LoopAgent(lambda _: deciding("give_up", reason="No such city.", mendable=True))
    await run(mendable, tmp_path)
    assert mendable.verdict == TurnResult(ResultStatus.INPUT_REQUIRED, "No such city.")


async def test_a_question_that_is_too_long_for_the_model_asks_for_less(tmp_path: Path) -> None:
    def step(_: Sequence[BaseMessage]) -> AIMessage:
        raise ContextOverflowError("2048 tokens at most")

    card = agent_card_pb2.AgentCard(name="loop", default_input_modes=["text/plain"])
    model = Model.from_chat_model(ScriptedModel(step))
    end = await run(
        ReasoningAgent(card, servers=["s"], tools=ScriptedTools(), model=model), tmp_path
    )
    assert end.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert "too long" in end.task.status.message.parts[0].text


async def test_an_answer_that_does_not_help_is_taken_back_and_given_again(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        told = messages[-1].text
        return AIMessage("a better one" if "lacks the city" in told else "a bad one")

    def judge(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage("N It lacks the city." if "a bad one" in messages[-1].text else "Y")

    agent = LoopAgent(step, checker=judge)
    end = await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "a better one ")
    (artifact,) = end.task.artifacts
    assert "".join(part.text for part in artifact.parts) == "a better one "
    assert end.artifacts[0].closed


async def test_a_check_without_end_ends_with_the_last_answer(tmp_path: Path) -> None:
    judged: list[str] = []

    def judge(messages: Sequence[BaseMessage]) -> AIMessage:
        judged.append(messages[-1].text)
        return AIMessage("N")

    agent = LoopAgent(lambda _: AIMessage("all that I know"), checker=judge)
    await run(agent, tmp_path)
    # Ten messages: the question, five answers, and what was wrong with the first four.
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "all that I know ")
    assert len(judged) == 4


async def test_an_answer_that_nobody_can_check_is_given(tmp_path: Path) -> None:
    def judge(_: Sequence[BaseMessage]) -> AIMessage:
        raise OSError("no network")

    agent = LoopAgent(lambda _: AIMessage("an answer"), checker=judge)
    await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "an answer ")


async def test_a_call_with_arguments_that_are_none_is_told_to_the_model(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        if len(messages) > 2:
            return AIMessage(" | ".join(one.text for one in messages[3:]))
        broken = invalid_tool_call(name="s__plain", args="x = 1", id="c", error="no JSON")
        return AIMessage(content="", invalid_tool_calls=[broken])

    agent = LoopAgent(step)
    await run(agent, tmp_path)
    assert agent.verdict is not None
    # Behind the prompt, the question and the call: its answer, for providers, and what to do.
    answered, told = agent.verdict.text.split(" | ")
    assert answered.endswith("the tool was not called.")
    assert told.startswith("The arguments of your call are not a valid JSON object.")


async def test_the_last_message_may_call_no_tools(tmp_path: Path) -> None:
    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        is_last = "last message" in messages[-1].text
        return AIMessage("so far so good") if is_last else calling("plain", "plain")

    agent = LoopAgent(step)
    await run(agent, tmp_path)
    assert agent.verdict == TurnResult(ResultStatus.COMPLETED, "so far so good ")
    # What tools answer at once is one message, so that four rounds leave room for an answer.
    assert agent.tools.called == ["plain"] * 8
    assert agent.model.offered[-1] == ["ask_user", "give_up"]


async def test_a_model_that_only_calls_tools_meets_the_limit(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: calling("plain"))
    end = await run(agent, tmp_path)
    assert agent.error is not None
    assert "within 10 messages" in "".join(part.text for part in end.task.status.message.parts)
    # The question, then the model and a tool in turns, and no eleventh message.
    assert agent.tools.called == ["plain"] * 4


async def test_a_model_that_never_answers_meets_the_limit(tmp_path: Path) -> None:
    agent = LoopAgent(lambda _: AIMessage(""))
    await run(agent, tmp_path)
    assert agent.error is not None


def test_importing_the_room_loads_no_framework() -> None:
    heavy = ("langgraph", "langchain_core", "mcp")
    rooms = "trunkline.reasoning, trunkline.tools.adapter, trunkline_agents.math.agent"
    probe = f"import sys, {rooms}; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
    assert loaded.stdout.decode().strip() == "[]"
