"""The reasoning loop as a LangGraph graph: agent, tools, agent, check, until there is a verdict.

Imports LangGraph, so load it lazily.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format, timestamp_pb2
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall as ModelToolCall
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from opentelemetry.trace import Span, SpanKind

from trunkline import telemetry
from trunkline.errors import StepLimitError, TrunklineError
from trunkline.reasoning.checkpoints import Thread
from trunkline.reasoning.source import ToolSource
from trunkline.reasoning.toolbox import Toolbox
from trunkline.reasoning.verdict import STATUS_KEY, Status, Verdict
from trunkline.tasks.turn.context import TaskContext
from trunkline.tasks.turn.writers import ArtifactWriter
from trunkline.v1 import event_pb2, message_pb2, part_pb2, tool_service_pb2

MESSAGE_LIMIT = 10
"""Messages that one turn may take: the question, the model's and the tools'."""
_SUMMARY_CHARS = 200


@dataclass(slots=True)
class Turn:
    """What the nodes of one run work on."""

    task: TaskContext
    model: BaseChatModel
    model_name: str
    tools: Toolbox
    source: ToolSource
    earlier: int = 0
    """Messages in the state that are older than this turn."""
    thread: Thread | None = None
    """Where the turn's checkpoints are; None: nobody could go on from them."""
    streamed: str = ""
    parts: list[part_pb2.Part] = field(default_factory=list)
    """What tools gave that is no text."""
    _answer: ArtifactWriter | None = None

    async def say(self, text: str) -> None:
        """Stream a piece of the answer."""
        await self._artifact().append(text)
        self.streamed += text

    async def written(self) -> dict[str, int]:
        """Return how much of the answer is in the journal: what a checkpoint may count on."""
        if self._answer is None or not self.streamed:
            return {}
        if self.thread is not None:
            await self.task.settled()
        return {self._answer.id: len(self.streamed)}

    async def finish(self) -> None:
        """Complete the answer with what is no text."""
        answer = self._artifact()
        for part in self.parts:
            await answer.append(part)
        await answer.close()

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Stand where a checkpoint of this turn was made; the answer has been rewound to there."""
        self.parts = [part_pb2.Part.FromString(part) for part in state.get("parts", ())]
        written = state.get("written") or {}
        for artifact in self.task.latest.task.artifacts:
            if length := written.get(artifact.artifact_id):
                text = "".join(part.text for part in artifact.parts)
                self.streamed = text[:length]
                # Whatever stood behind the whole of it was not cut off.
                kept = 0 if length < len(text) else len(artifact.parts) - 1
                del self.parts[: max(0, kept)]

    def _artifact(self) -> ArtifactWriter:
        if self._answer is None:
            kind = event_pb2.ARTIFACT_KIND_ANSWER
            self._answer = self.task.artifact("answer", kind=kind)
        return self._answer


class _State(MessagesState, total=False):
    """What a checkpoint holds of a turn, in types that any serialiser takes."""

    written: dict[str, int]
    """Characters of the turn's artifacts, by their ids."""
    parts: list[bytes]
    verdict: dict[str, str]


Graph = CompiledStateGraph[_State, Turn, _State, _State]


def build_graph() -> Graph:
    """Return the loop, ready to run for any agent and model."""
    graph = StateGraph(_State, context_schema=Turn)
    graph.add_node("agent", _agent)
    graph.add_node("tools", _tools)
    graph.add_node("check", _check)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", _after_agent, ["tools", "check"])
    graph.add_edge("tools", "agent")
    graph.add_conditional_edges("check", _after_check, ["agent", END])
    return graph.compile()


async def answer(graph: Graph, turn: Turn, prompt: str) -> Verdict:
    """Run a turn's question through the loop. What is completed has been streamed and closed.

    A turn that a checkpoint was found of goes on from there.

    Raises:
        StepLimitError: there was no answer within the limit.
    """
    earlier = [SystemMessage(prompt), *_history(turn.task.history[:-1])]
    turn.earlier = len(earlier)
    # Each message takes at most two steps of LangGraph's own count.
    config: dict[str, Any] = {"recursion_limit": 3 * MESSAGE_LIMIT}
    state: dict[str, Any] | None = {"messages": [*earlier, HumanMessage(turn.task.text)]}
    if turn.thread is not None:
        graph = graph.copy({"checkpointer": turn.thread.checkpoints})
        config["configurable"] = {"thread_id": turn.thread.id}
        if turn.thread.state is not None:
            state = None
            turn.go_on(turn.thread.state)
    end = await graph.ainvoke(  # type: ignore[call-overload]
        state, config, context=turn, durability="sync" if turn.thread else None
    )
    verdict = _verdict_of(end)
    if verdict.status == Status.COMPLETED:
        await turn.finish()
    return verdict


async def _agent(state: _State, runtime: Runtime[Turn]) -> dict[str, Any]:
    turn = runtime.context
    _check_room(turn, state, 1)
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.CHAT,
        telemetry.GEN_AI_PROVIDER_NAME: turn.model_name.partition(":")[0],
        telemetry.GEN_AI_REQUEST_MODEL: turn.model_name,
    }
    name = f"{telemetry.CHAT} {turn.model_name}"
    with telemetry.span(name, kind=SpanKind.CLIENT, attributes=attributes):
        reply = await _think(turn, state["messages"])
    return {"messages": [reply], "written": await turn.written()}


async def _think(turn: Turn, messages: Sequence[BaseMessage]) -> BaseMessage:
    """Ask the model, and stream what it says as it says it, if that is an answer."""
    specs = turn.tools.specs(with_metadata=turn.model_name == "rules")
    model = turn.model.bind_tools(specs)
    whole: AIMessageChunk | None = None
    async for chunk in model.astream(list(messages)):
        if not isinstance(chunk, AIMessageChunk):
            continue
        whole = chunk if whole is None else whole + chunk
        if chunk.text and _status_of(whole) == Status.COMPLETED:
            await turn.say(chunk.text)
    return whole if whole is not None else AIMessage("")


async def _tools(state: _State, runtime: Runtime[Turn]) -> dict[str, Any]:
    calls = _last_reply(state).tool_calls
    _check_room(runtime.context, state, len(calls))
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_call(runtime.context, call)) for call in calls]
    parts = [part.SerializeToString() for part in runtime.context.parts]
    return {"messages": [call.result() for call in running], "parts": parts}


async def _call(turn: Turn, call: ModelToolCall) -> ToolMessage:
    tool = turn.tools.find(call["name"])
    if tool is None:
        return _failure(call, f"There is no tool {call['name']}.")
    label = f"{tool.server}/{tool.name}"
    await turn.task.working(f"Calling {label}…")
    attributes = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.EXECUTE_TOOL,
        telemetry.GEN_AI_TOOL_NAME: tool.name,
        telemetry.GEN_AI_TOOL_CALL_ID: call["id"] or "",
        telemetry.TOOL_SERVER: tool.server,
    }
    async with turn.task.tool(label, call["args"]) as record:
        with telemetry.span(f"{telemetry.EXECUTE_TOOL} {tool.name}", attributes=attributes) as span:
            message = await _execute(turn, tool, call, span)
        record.is_error = message.status == "error"
        record.summary = " ".join(message.text.split())[:_SUMMARY_CHARS]
    return message


async def _execute(
    turn: Turn, tool: tool_service_pb2.Tool, call: ModelToolCall, span: Span
) -> ToolMessage:
    label = f"{tool.server}/{tool.name}"

    async def on_progress(progress: tool_service_pb2.ToolProgress) -> None:
        total = f" of {progress.total:g}" if progress.total else ""
        news = progress.message or f"{progress.progress:g}{total}"
        await turn.task.working(f"{label}: {news}")

    try:
        request = _request(turn.task, tool, call["args"])
        result = await turn.source.call_tool(request, on_progress=on_progress)
    except TrunklineError as error:
        telemetry.mark_error(span, error)
        return _failure(call, f"{label} failed: {error}.")
    text = "\n".join(part.text for part in result.content if part.HasField("text"))
    if result.is_error:
        telemetry.mark_error(span, telemetry.TOOL_ERROR)
        if result.is_mendable:
            return _failure(call, text or f"{label} can't do that.", is_mendable=True)
        return _failure(call, f"{label} failed: {text or 'it does not say why.'}")
    turn.parts += [part for part in result.content if not part.HasField("text")]
    structured = json_format.MessageToDict(result.structured_content)
    if not text and not turn.parts:
        text = f"{label} answered with nothing."
    artifact = {"structured": structured}
    return ToolMessage(content=text, tool_call_id=call["id"] or "", artifact=artifact)


async def _check(state: _State, runtime: Runtime[Turn]) -> dict[str, Any]:
    """Judge whether the reply is an answer; if it is none, the model is asked again."""
    turn = runtime.context
    reply = _last_reply(state)
    status = _status_of(reply)
    text = turn.streamed if status == Status.COMPLETED else reply.text
    if not text.strip() and not turn.parts:
        return {"messages": [SystemMessage("That was no answer. Answer the question.")]}
    return {"verdict": {"status": status.value, "text": text}}


def _check_room(turn: Turn, state: _State, count: int) -> None:
    """Refuse what would take more messages than a turn may."""
    if len(state["messages"]) - turn.earlier + count > MESSAGE_LIMIT:
        raise StepLimitError(turn.task.agent, str(MESSAGE_LIMIT))


def _after_agent(state: _State) -> str:
    return "tools" if _last_reply(state).tool_calls else "check"


def _after_check(state: _State) -> str:
    return END if state.get("verdict") else "agent"


def _verdict_of(end: Mapping[str, Any]) -> Verdict:
    found = end.get("verdict") or {"status": Status.ERROR, "text": "There is no answer."}
    return Verdict(Status(found["status"]), found["text"])


def _last_reply(state: _State) -> AIMessage:
    reply = state["messages"][-1]
    return reply if isinstance(reply, AIMessage) else AIMessage(reply.text)


def _status_of(reply: AIMessage) -> Status:
    """A model that says nothing of it, as those of providers do, has answered."""
    return Status(reply.response_metadata.get(STATUS_KEY, Status.COMPLETED))


def _request(
    task: TaskContext, tool: tool_service_pb2.Tool, arguments: dict[str, Any]
) -> tool_service_pb2.CallToolRequest:
    request = tool_service_pb2.CallToolRequest(
        server=tool.server, tool=tool.name, task_id=task.id, agent=task.agent
    )
    request.arguments.update(arguments)
    if task.deadline is not None:
        deadline = timestamp_pb2.Timestamp()
        deadline.FromDatetime(task.deadline)
        request.deadline.CopyFrom(deadline)
    return request


def _failure(call: ModelToolCall, text: str, *, is_mendable: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        tool_call_id=call["id"] or "",
        status="error",
        artifact={"is_mendable": is_mendable},
    )


def _history(messages: Sequence[message_pb2.Message]) -> list[BaseMessage]:
    """Return earlier messages of the task as the model is shown them."""
    shown: list[BaseMessage] = []
    for message in messages:
        text = " ".join(part.text for part in message.parts if part.HasField("text"))
        is_user = message.role == message_pb2.ROLE_USER
        shown.append(HumanMessage(text) if is_user else AIMessage(text))
    return shown
