"""LangGraph graphs as agents: what of a run is told, what is asked, what is remembered."""

import asyncio
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel

from trunkline import FunctionAgent, Part, TaskContext, TaskState, from_langgraph
from trunkline.errors import ConfigurationError
from trunkline.testing import Answer, Call, Mesh, ScriptedModel, mesh


class Log(TypedDict):
    asked: str
    log: Annotated[list[Any], operator.add]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def saying(model: ScriptedModel) -> Any:
    async def say(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return say


def reacting(model: ScriptedModel, **compiled: Any) -> Any:
    """The usual loop of a model and its tools."""
    graph = StateGraph(MessagesState)
    graph.add_node("agent", saying(model))
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(**compiled)


def logging(*nodes: Any) -> Any:
    """Nodes that begin at once, over a state without messages."""
    graph = StateGraph(Log)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    return graph.compile()


def made(graph: Any, **options: Any) -> FunctionAgent:
    return from_langgraph(graph, name="graph", description="Under test.", **options)


def logged(graph: Any, **options: Any) -> FunctionAgent:
    return made(
        graph,
        input=lambda task: {"asked": task.text},
        output=lambda state: repr(state["log"]),
        **options,
    )


async def followed(m: Mesh, text: str) -> tuple[Answer, list[str]]:
    """Ask, and return the news and the pieces in the order in which they came."""
    told: list[str] = []
    async with m.stream(text) as stream:
        async for event in stream:
            match event.WhichOneof("event"):
                case "status":
                    told += [part.text for part in event.status.status.message.parts]
                case "delta":
                    told += event.delta.texts
                case "rewound":
                    told.append("rewound")
                case "tool_started":
                    told.append(f"{event.tool_started.tool} begins")
                case "tool_finished":
                    told.append(f"{event.tool_finished.tool}: {event.tool_finished.summary}")
    return await m.get(stream.task_id), told


async def test_its_words_stream_and_its_calls_of_tools_are_told() -> None:
    calls = [Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})]
    model = ScriptedModel(calls, "The sums are 3 and 7.")
    async with mesh(made(reacting(model))) as m:
        answer, told = await followed(m, "sums?")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "The sums are 3 and 7.")
    assert told == [
        *("Calling add…", "add begins", "Calling add…", "add begins"),
        *("add: 3", "add: 7", "Processing the results…"),
        *("The ", "sums ", "are ", "3 ", "and ", "7."),
    ]
    assert answer.artifacts[0].name == "answer"
    assert model.is_exhausted


async def test_what_a_model_says_before_it_calls_a_tool_is_news_and_no_answer() -> None:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
    model = ScriptedModel(AIMessage("I add them.", tool_calls=[call]), "It is 3.")
    async with mesh(made(reacting(model))) as m:
        answer, told = await followed(m, "1+2?")
    assert answer.text == "It is 3."
    assert told[:5] == ["I ", "add ", "them.", "rewound", "I add them."]


async def test_the_last_of_several_models_has_the_answer_also_in_a_graph_below() -> None:
    below = StateGraph(MessagesState)
    below.add_node("write", saying(ScriptedModel("The answer.")))
    below.add_edge(START, "write")
    graph = StateGraph(MessagesState)
    graph.add_node("plan", saying(ScriptedModel("A plan.")))
    graph.add_node("work", below.compile())
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "work")
    async with mesh(made(graph.compile())) as m:
        answer, told = await followed(m, "go")
    assert answer.text == "The answer."
    assert told == ["A ", "plan.", "rewound", "The ", "answer."]


@pytest.mark.parametrize(("nodes", "streamed"), [(("work",), ["The ", "end."]), ((), ["The end."])])
async def test_only_the_nodes_that_were_named_are_heard(
    nodes: Sequence[str], streamed: list[str]
) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("plan", saying(ScriptedModel("A plan.")))
    graph.add_node("work", saying(ScriptedModel("The end.")))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "work")
    async with mesh(made(graph.compile(), stream=nodes)) as m:
        answer, told = await followed(m, "go")
    assert (answer.text, told) == ("The end.", streamed)


async def test_models_that_speak_at_once_are_heard_one_after_the_other() -> None:
    def joined(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(" ".join(str(one.text) for one in state["messages"][1:]))]}

    graph = StateGraph(MessagesState)
    for name in ("left", "right"):
        graph.add_node(name, saying(ScriptedModel(f"{name} says this")))
        graph.add_edge(START, name)
        graph.add_edge(name, "join")
    graph.add_node("join", joined)
    async with mesh(made(graph.compile())) as m:
        answer, told = await followed(m, "go")
    assert answer.text == "left says this right says this"
    assert told.count("rewound") <= 2


async def test_a_node_tells_news_and_gives_files() -> None:
    def work(state: Log) -> dict[str, Any]:
        tell = get_stream_writer()
        tell("half way")
        tell(Part(raw=b"1,2", media_type="text/csv", filename="table.csv"))
        tell({"nobody": "knows"})
        return {"log": [state["asked"]]}

    def output(state: Log) -> list[str | Part]:
        return ["made of ", state["log"][0], Part(url="https://example.com/a.png")]

    agent = made(logging(work), input=lambda task: {"asked": task.text}, output=output)
    async with mesh(agent) as m:
        answer, told = await followed(m, "go")
    assert told[0] == "half way"
    assert [one.name for one in answer.artifacts] == ["table.csv", "answer"]
    assert answer.artifacts[0].parts[0].raw == b"1,2"
    assert [part.WhichOneof("content") for part in answer.artifacts[1].parts] == ["text", "url"]
    assert answer.text == "made of go"


async def test_an_interrupt_asks_and_the_next_message_is_what_it_returns() -> None:
    def two(state: Log) -> dict[str, Any]:
        first = interrupt("first?")
        second = interrupt({"question": "second?", "options": [1, 2]})
        return {"log": [first, second]}

    runs: list[str] = []

    def beside(state: Log) -> dict[str, Any]:
        runs.append("beside")
        return {"log": ["beside"]}

    data = Part(media_type="application/json")
    data.data.struct_value.update({"option": 2})
    modes = ["text/plain", "application/json"]
    async with mesh(logged(logging(two, beside), input_modes=modes)) as m:
        first = await m.ask("go")
        second = await m.ask("one", task=first)
        end = await m.ask("two:", data, task=second)
    assert (first.state, first.status_text) == (TaskState.INPUT_REQUIRED, "first?")
    assert (second.state, second.status_text) == (TaskState.INPUT_REQUIRED, "second?")
    assert second.data == [{"question": "second?", "options": [1, 2]}]
    assert (end.state, end.text) == (TaskState.COMPLETED, "['beside', 'one', {'option': 2}]")
    assert runs == ["beside"]


async def test_several_interrupts_are_asked_one_after_the_other() -> None:
    def left(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("left?")]}

    def right(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("right?")]}

    async with mesh(logged(logging(left, right), resume=lambda task: task.text.upper())) as m:
        first = await m.ask("go")
        second = await m.ask(first.status_text, task=first)
        end = await m.ask(second.status_text, task=second)
    assert {first.status_text, second.status_text} == {"left?", "right?"}
    assert end.text == "['LEFT?', 'RIGHT?']"


async def test_a_graph_below_asks_and_remembers_where_it_stood() -> None:
    runs: list[str] = []

    def before(state: Log) -> dict[str, Any]:
        runs.append("before")
        return {"log": ["before"]}

    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("deep?")]}

    below = StateGraph(Log)
    below.add_node("before", before)
    below.add_node("ask", ask)
    below.add_edge(START, "before")
    below.add_edge("before", "ask")
    graph = StateGraph(Log)
    graph.add_node("below", below.compile())
    graph.add_edge(START, "below")
    async with mesh(logged(graph.compile())) as m:
        asked = await m.ask("go")
        assert (asked.state, asked.status_text) == (TaskState.INPUT_REQUIRED, "deep?")
        assert (await m.ask("yes", task=asked)).text == "['before', 'yes']"
    assert runs == ["before"]


async def test_a_graph_that_stops_before_a_node_asks_whether_it_goes_on() -> None:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
    model = ScriptedModel(AIMessage("", tool_calls=[call]), "It is 3.")
    async with mesh(made(reacting(model, interrupt_before=["tools"]))) as m:
        asked = await m.ask("1+2?")
        assert (asked.state, asked.status_text) == (
            TaskState.INPUT_REQUIRED,
            "Continue with tools?",
        )
        assert (await m.ask("yes", task=asked)).text == "It is 3."


async def test_what_waits_can_be_answered_on_the_next_mesh(tmp_path: Path) -> None:
    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("what?")]}

    agent = logged(logging(ask))
    async with mesh(agent, data_dir=tmp_path) as m:
        asked = await m.ask("go")
    async with mesh(agent, data_dir=tmp_path) as m:
        assert (await m.ask("this", task=asked)).text == "['this']"


async def test_what_waits_in_a_checkpointer_that_is_gone_fails_and_says_so(tmp_path: Path) -> None:
    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("what?")]}

    def forgetful() -> FunctionAgent:
        graph = StateGraph(Log)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        return logged(graph.compile(checkpointer=InMemorySaver()))

    async with mesh(forgetful(), data_dir=tmp_path) as m:
        asked = await m.ask("go")
    async with mesh(forgetful(), data_dir=tmp_path) as m:
        answer = await m.ask("this", task=asked)
    assert (answer.state, answer.status_text) == (
        TaskState.FAILED,
        "its state was lost; ask again",
    )


async def test_calls_to_approve_are_approvals_like_any_others() -> None:
    def call(state: Log) -> dict[str, Any]:
        calls = [{"name": "delete", "args": {"file": name}} for name in "abc"]
        return {"log": [interrupt({"action_requests": calls, "review_configs": []})]}

    async with mesh(logged(logging(call))) as m:
        asked = await m.ask("go")
        assert len(asked.approvals) == 3
        assert asked.approvals[0].requested.tool == "delete"
        unclear = await m.ask("what?", task=asked)
        assert unclear.state is TaskState.INPUT_REQUIRED
        some = await m.ask("approve 1", task=asked)
        assert (some.state, len(some.approvals)) == (TaskState.INPUT_REQUIRED, 2)
        end = await m.ask('edit 2 {"file": "x"}\nreject 3 not that', task=asked)
    decisions = [
        {"type": "approve"},
        {"type": "edit", "edited_action": {"name": "delete", "args": {"file": "x"}}},
        {"type": "reject", "message": "not that"},
    ]
    assert end.text == repr([{"decisions": decisions}])


def kinds(messages: Sequence[BaseMessage]) -> str:
    return " ".join(str(message.text) for message in messages)


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_context_is_a_conversation_that_outlives_the_mesh(
    tmp_path: Path, *, is_own: bool
) -> None:
    own = {"checkpointer": InMemorySaver()} if is_own else {}
    model = ScriptedModel("one", "two", kinds, kinds)
    agent = made(reacting(model, **own))
    async with mesh(agent, data_dir=tmp_path) as m:
        first = await m.ask("a")
        await m.ask("b", context=first)
    async with mesh(agent, data_dir=tmp_path) as m:
        assert (await m.ask("c", context=first)).text == "a one b two c"
        assert (await m.ask("d")).text == "d"


async def test_a_task_that_waits_holds_up_nobody_and_nothing_said_is_lost() -> None:
    def node(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].text == "wait":
            return {"messages": [AIMessage(str(interrupt("for what?")))]}
        return {"messages": [AIMessage(kinds(state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    async with mesh(made(graph.compile())) as m:
        waiting = await m.ask("wait")
        assert (await m.ask("a", context=waiting)).text == "a"
        assert (await m.ask("for this", task=waiting)).text == "for this"
        assert (await m.ask("b", context=waiting)).text == "a a wait for this b"


async def test_what_is_said_at_once_in_a_context_is_heard_one_after_the_other() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def node(state: MessagesState) -> dict[str, Any]:
        began.set()
        await go.wait()
        return {"messages": [AIMessage(kinds(state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    async with mesh(made(graph.compile())) as m:
        first = await m.submit("a")
        await began.wait()
        second = await m.submit("b", context=first)
        await m.wait_until(second, lambda answer: "Waiting" in answer.status_text)
        go.set()
        assert (await m.wait_until(first)).text == "a"
        assert (await m.wait_until(second)).text == "a a b"


async def test_what_failed_or_was_canceled_leaves_nothing_in_the_conversation() -> None:
    began = asyncio.Event()

    async def node(state: MessagesState) -> dict[str, Any]:
        match state["messages"][-1].text:
            case "fail":
                raise ValueError("a secret")
            case "hang":
                began.set()
                await asyncio.Event().wait()
        return {"messages": [AIMessage(kinds(state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    async with mesh(made(graph.compile())) as m:
        first = await m.ask("a")
        failed = await m.ask("fail", context=first)
        assert failed.state is TaskState.FAILED
        assert "secret" not in failed.status_text
        hanging = await m.submit("hang", context=first)
        await began.wait()
        assert (await m.cancel(hanging)).state is TaskState.CANCELED
        assert (await m.ask("b", context=first)).text == "a a b"


@pytest.mark.parametrize(("own", "given", "limit"), [(None, None, 250), (7, None, 7), (7, 5, 5)])
async def test_a_graph_that_comes_to_no_end_is_stopped(
    own: int | None, given: int | None, limit: int
) -> None:
    graph = StateGraph(Log)
    graph.add_node("again", lambda state: {"log": [1]})
    graph.add_edge(START, "again")
    graph.add_edge("again", "again")
    compiled = graph.compile()
    if own is not None:
        compiled = compiled.with_config(recursion_limit=own)
    async with mesh(logged(compiled, step_limit=given)) as m:
        answer = await m.ask("go")
    assert answer.state is TaskState.FAILED
    assert f"did not finish within {limit} steps" in answer.status_text


async def test_nodes_find_what_is_made_of_the_task() -> None:
    class Place(BaseModel):
        city: str

    class Deps(TypedDict):
        city: str
        caller: str

    def node(state: Log, runtime: Runtime[Deps]) -> dict[str, Any]:
        return {"log": [runtime.context["city"], get_runtime(Deps).context["caller"]]}

    def context(task: TaskContext[Place]) -> Deps:
        return Deps(city=task.settings.city, caller=task.caller)

    async def given(task: TaskContext[Place]) -> dict[str, str]:
        return {"asked": task.text}

    graph = StateGraph(Log, context_schema=Deps)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    agent = made(
        graph.compile(),
        settings=Place,
        context=context,
        input=given,
        output=lambda state: repr(state["log"]),
    )
    async with mesh(agent, options={"graph": {"city": "Oslo"}}) as m:
        assert (await m.ask("go")).text == "['Oslo', '']"


async def test_files_reach_the_model_as_content_blocks() -> None:
    def block(messages: Sequence[BaseMessage]) -> str:
        return repr(messages[-1].content)

    agent = made(reacting(ScriptedModel(block)), input_modes=["text/plain", "image/png"])
    image = Part(raw=b"png", media_type="image/png", filename="a.png")
    async with mesh(agent) as m:
        answer = await m.ask("what is it?", image)
    assert eval(answer.text) == [  # noqa: S307  what repr has made
        {"type": "text", "text": "what is it?"},
        {
            "type": "image",
            "mime_type": "image/png",
            "extras": {"filename": "a.png"},
            "base64": "cG5n",
        },
    ]


def test_what_can_be_no_agent_is_said_so() -> None:
    graph: Any = StateGraph(Log)
    with pytest.raises(ConfigurationError, match=r"graph\.compile\(\)"):
        made(graph)
    with pytest.raises(ConfigurationError, match="input= and output="):
        made(logging(lambda state: {}))
