"""Type checks of the public package from the view of an agent's author; mypy reads this.

Nothing runs this module. `assert_type` states the expected type. A line with an ignore must fail to
type-check, because mypy reports unused ignores.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, assert_type

from langgraph.graph import MessagesState, StateGraph
from pydantic import BaseModel

from trunkline import (
    AgentAnswer,
    ApprovalAnswer,
    ApprovalDecision,
    ArtifactChange,
    ArtifactWriter,
    Client,
    ClientAnswer,
    ClientEvent,
    FunctionAgent,
    Message,
    Part,
    PlanWriter,
    StatusChange,
    TaskContext,
    TaskState,
    TextChunk,
    ToolCall,
    agent,
    from_a2a,
    from_langgraph,
    from_workflow,
    read_json,
    run,
    serve,
    write_json,
)
from trunkline.testing import Answer, Mesh, Stream, async_test, mesh


async def text(task: TaskContext) -> str:
    assert_type(task.text, str)
    assert_type(task.settings, None)
    assert_type(task.message, Message)
    assert_type(task.history, Sequence[Message])
    assert_type(task.turn, int)
    assert_type(task.deadline, datetime | None)
    assert_type(task.state, TaskState)
    task.state == 3  # type: ignore[comparison-overlap]  # noqa: B015
    task.forward  # type: ignore[attr-defined]  # noqa: B018
    assert_type(task.artifact("name"), ArtifactWriter)
    assert_type(task.plan(), PlanWriter)
    async with task.tool("server/tool", {"argument": 1}) as call:
        assert_type(call, ToolCall)
    await task.artifact().append(Part(text="a part"), last=True)
    assert_type(read_json(task.message.parts[0].data), Any)
    write_json(task.message.metadata, {"n": 1})
    write_json(task.message, 1)  # type: ignore[arg-type]
    await task.artifact().append(Message())  # type: ignore[arg-type]
    await task.artifact().append("text", True)  # type: ignore[call-arg]
    assert_type(await task.ask("math", "2+2", check=False), AgentAnswer)
    assert_type((await task.ask("math", Part(text="2+2"), key="sum")).text, str)
    await task.ask("math", 4)  # type: ignore[arg-type]
    stream = task.stream("math", "2+2")
    async for piece in stream:
        assert_type(piece, str)
    assert_type(stream.answer, AgentAnswer)
    assert_type((await task.call_tool("math/add", {"a": 1})).data, Mapping[str, Any] | None)
    assert_type(task.questions, Sequence[AgentAnswer])
    await task.require_input("which one?")
    await task.complete(3)  # type: ignore[arg-type]
    return "done"


async def pieces(task: TaskContext) -> AsyncIterator[str]:
    yield task.text


async def ask_approval(task: TaskContext) -> str | None:
    answer = await task.request_approval("shop/buy", {"book": "Dune"})
    assert_type(answer, ApprovalAnswer | None)
    if answer is None:
        return None
    if answer.decision == ApprovalDecision.REJECTED:
        return answer.reason
    answer.decision == "approved"  # type: ignore[comparison-overlap]  # noqa: B015
    return "It is edited." if answer.decision == ApprovalDecision.EDITED else "It is bought."


async def number(task: TaskContext) -> int:
    return 3


class Location(BaseModel):
    city: str


async def located(task: TaskContext[Location]) -> str:
    assert_type(task.settings, Location)
    task.settings.town  # type: ignore[attr-defined]  # noqa: B018
    return task.settings.city


def plain(task: TaskContext) -> str:
    return task.text


assert_type(agent(name="text", description="Answers.")(text), FunctionAgent)
assert_type(agent(name="pieces", description="Streams.")(pieces), FunctionAgent)
agent(name="approved", description="Asks first.")(ask_approval)
assert_type(agent(text), FunctionAgent)
assert_type(agent(name="text")(text), FunctionAgent)
agent(number)  # type: ignore[arg-type]
agent(name="number", description="Returns a number.")(number)  # type: ignore[arg-type]
agent(description="Has words.", tags=3)  # type: ignore[call-overload]
agent(description="Has words.", tag="word")  # type: ignore[call-overload]
assert_type(agent(name="plain", description="Runs in a thread.")(plain), FunctionAgent)
run(agent(name="text", description="Answers.")(text))
run("text")  # type: ignore[arg-type]


async def serve_agent() -> None:
    await serve(agent(text), mesh="127.0.0.1:50051")
    await serve("text")  # type: ignore[arg-type]


agent(name="placed", description="Has settings.", settings=Location)(located)
agent(name="placed", description="Lacks settings.")(located)  # type: ignore[arg-type]
agent(name="text", description="Has others.", settings=Location)(text)  # type: ignore[arg-type]
assert_type(from_a2a("https://agent.example", name="far"), FunctionAgent)
from_a2a("https://agent.example")  # type: ignore[call-arg]


graph = StateGraph(MessagesState).compile()
assert_type(from_langgraph(graph, name="graph", description="Is one."), FunctionAgent)
assert_type(from_workflow("flow.yaml", "newer.yaml"), FunctionAgent)
from_langgraph(
    graph,
    name="graph",
    description="Has settings.",
    settings=Location,
    context=lambda task: task.settings.city,
    input=lambda task: {"messages": [task.text]},
)
from_langgraph(graph, name="graph", description="Is one.", tags=3)  # type: ignore[arg-type]
from_langgraph(graph, name="graph", description="Gives a number.", output=lambda state: 3)  # type: ignore[arg-type, return-value]


@async_test
async def check_mesh() -> None:
    async with mesh(agent(name="text", description="Answers.")(text)) as m:
        assert_type(m, Mesh)
        answer = await m.ask("a", Part(text="b"), context="c")
        assert_type(answer, Answer)
        assert_type(answer.state, TaskState)
        assert_type((await m.ask("d", task=answer)).text, str)
        await m.ask(3)  # type: ignore[arg-type]
        async with m.stream("e") as stream:
            assert_type(stream, Stream)
            assert_type([piece async for piece in stream.text_chunks()], list[str])


assert_type(check_mesh(), None)


async def call() -> None:
    async with Client("http://127.0.0.1:8000", agent="math") as client:
        answer = await client.ask("what is 2+2", Part(text="?"), {"exact": True})
        assert_type(answer, ClientAnswer)
        assert_type(answer.state, TaskState)
        assert_type(answer.parts, Sequence[Part])
        stream = client.stream("what is 2+2")
        async for event in stream:
            assert_type(event, ClientEvent)
            match event:
                case TextChunk(text=chunk):
                    assert_type(chunk, str)
                case StatusChange(state=state):
                    assert_type(state, TaskState)
                case ArtifactChange() | ClientAnswer():
                    pass
        assert_type(stream.answer, ClientAnswer)
        resumed = client.resume(stream.task_id, after=stream.cursor)
        assert_type(await resumed.read_answer(), ClientAnswer)
        await client.ask(1)  # type: ignore[arg-type]
