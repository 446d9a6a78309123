"""LangGraph graphs as agents: streaming, interrupts and conversations."""

import asyncio
import operator
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel

from trunkline import FunctionAgent, Part, TaskContext, TaskState, from_langgraph
from trunkline.core.json_values import update_struct
from trunkline.errors import ConfigurationError
from trunkline.testing import Answer, Call, Mesh, ScriptedModel, mesh


class Log(TypedDict):
    question: str
    log: Annotated[list[Any], operator.add]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model_node(model: ScriptedModel) -> Any:
    async def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return call_model


def react_graph(model: ScriptedModel, **compiled: Any) -> Any:
    """Build the usual loop of a model and its tools."""
    graph = StateGraph(MessagesState)
    graph.add_node("agent", model_node(model))
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(**compiled)


def parallel_graph(*nodes: Any) -> Any:
    """Build a graph whose nodes all start at once, over a state without messages."""
    graph = StateGraph(Log)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    return graph.compile()


def graph_agent(graph: Any, **options: Any) -> FunctionAgent:
    return from_langgraph(graph, name="graph", description="Under test.", **options)


def log_agent(graph: Any, **options: Any) -> FunctionAgent:
    return graph_agent(
        graph,
        input=lambda task: {"question": task.text},
        output=lambda state: repr(state["log"]),
        **options,
    )


async def ask_and_record(m: Mesh, text: str) -> tuple[Answer, list[str]]:
    """Send a message; return the answer and its status texts and pieces in order of arrival."""
    events: list[str] = []
    async with m.stream(text) as stream:
        async for event in stream:
            match event.WhichOneof("event"):
                case "status":
                    events += [part.text for part in event.status.status.message.parts]
                case "delta":
                    events += event.delta.texts
                case "rewound":
                    events.append("rewound")
                case "tool_started":
                    events.append(f"{event.tool_started.tool} begins")
                case "tool_finished":
                    events.append(f"{event.tool_finished.tool}: {event.tool_finished.summary}")
    return await m.get(stream.task_id), events


async def test_text_streams_and_tool_calls_are_reported() -> None:
    calls = [Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})]
    model = ScriptedModel(calls, "The sums are 3 and 7.")
    async with mesh(graph_agent(react_graph(model))) as m:
        answer, events = await ask_and_record(m, "sums?")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "The sums are 3 and 7.")
    assert events == [
        *("Calling add…", "add begins", "Calling add…", "add begins"),
        *("add: 3", "add: 7", "Processing the results…"),
        *("The ", "sums ", "are ", "3 ", "and ", "7."),
    ]
    assert answer.artifacts[0].name == "answer"
    assert model.is_exhausted


async def test_text_before_a_tool_call_is_a_status_and_no_answer() -> None:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
    model = ScriptedModel(AIMessage("I add them.", tool_calls=[call]), "It is 3.")
    async with mesh(graph_agent(react_graph(model))) as m:
        answer, events = await ask_and_record(m, "1+2?")
    assert answer.text == "It is 3."
    assert events[:5] == ["I ", "add ", "them.", "rewound", "I add them."]


async def test_the_last_of_several_models_gives_the_answer_also_in_a_subgraph() -> None:
    subgraph = StateGraph(MessagesState)
    subgraph.add_node("write", model_node(ScriptedModel("The answer.")))
    subgraph.add_edge(START, "write")
    graph = StateGraph(MessagesState)
    graph.add_node("plan", model_node(ScriptedModel("A plan.")))
    graph.add_node("work", subgraph.compile())
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "work")
    async with mesh(graph_agent(graph.compile())) as m:
        answer, events = await ask_and_record(m, "go")
    assert answer.text == "The answer."
    assert events == ["A ", "plan.", "rewound", "The ", "answer."]


@pytest.mark.parametrize(("nodes", "expected"), [(("work",), ["The ", "end."]), ((), ["The end."])])
async def test_only_the_named_nodes_stream(nodes: Sequence[str], expected: list[str]) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("plan", model_node(ScriptedModel("A plan.")))
    graph.add_node("work", model_node(ScriptedModel("The end.")))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "work")
    async with mesh(graph_agent(graph.compile(), stream=nodes)) as m:
        answer, events = await ask_and_record(m, "go")
    assert (answer.text, events) == ("The end.", expected)


async def test_concurrent_models_stream_one_after_the_other() -> None:
    def join(state: MessagesState) -> dict[str, Any]:
        return {
            "messages": [
                AIMessage(" ".join(str(message.text) for message in state["messages"][1:]))
            ]
        }

    graph = StateGraph(MessagesState)
    for name in ("left", "right"):
        graph.add_node(name, model_node(ScriptedModel(f"{name} says this")))
        graph.add_edge(START, name)
        graph.add_edge(name, "join")
    graph.add_node("join", join)
    async with mesh(graph_agent(graph.compile())) as m:
        answer, events = await ask_and_record(m, "go")
    assert answer.text == "left says this right says this"
    assert events.count("rewound") <= 2


async def test_a_node_sends_statuses_files_and_data() -> None:
    def work(state: Log) -> dict[str, Any]:
        send = get_stream_writer()
        send("half way")
        send(Part(raw=b"1,2", media_type="text/csv", filename="table.csv"))
        send({"rows": 2, "done": False})
        return {"log": [state["question"]]}

    def output(state: Log) -> list[str | Part]:
        return ["made of ", state["log"][0], Part(url="https://example.com/a.png")]

    agent = graph_agent(
        parallel_graph(work), input=lambda task: {"question": task.text}, output=output
    )
    async with mesh(agent) as m:
        answer, events = await ask_and_record(m, "go")
    assert events[0] == "half way"
    assert [artifact.name for artifact in answer.artifacts] == ["table.csv", "", "answer"]
    assert answer.artifacts[0].parts[0].raw == b"1,2"
    assert answer.data == [{"rows": 2, "done": False}]
    assert [part.WhichOneof("content") for part in answer.artifacts[2].parts] == ["text", "url"]
    assert answer.text == "made of go"


async def test_an_interrupt_requires_input_and_returns_the_next_message() -> None:
    def two_questions(state: Log) -> dict[str, Any]:
        first = interrupt("first?")
        second = interrupt({"question": "second?", "options": [1, 2]})
        return {"log": [first, second]}

    runs: list[str] = []

    def parallel(state: Log) -> dict[str, Any]:
        runs.append("beside")
        return {"log": ["beside"]}

    data = Part(media_type="application/json")
    update_struct(data.data.struct_value, {"option": 2})
    modes = ["text/plain", "application/json"]
    async with mesh(log_agent(parallel_graph(two_questions, parallel), input_modes=modes)) as m:
        first = await m.ask("go")
        second = await m.ask("one", task=first)
        end = await m.ask("two:", data, task=second)
    assert (first.state, first.status_text) == (TaskState.INPUT_REQUIRED, "first?")
    assert (second.state, second.status_text) == (TaskState.INPUT_REQUIRED, "second?")
    assert second.data == [{"question": "second?", "options": [1, 2]}]
    assert (end.state, end.text) == (TaskState.COMPLETED, "['beside', 'one', {'option': 2}]")
    assert runs == ["beside"]


async def test_several_interrupts_are_answered_one_after_the_other() -> None:
    def left(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("left?")]}

    def right(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("right?")]}

    async with mesh(
        log_agent(parallel_graph(left, right), resume=lambda task: task.text.upper())
    ) as m:
        first = await m.ask("go")
        second = await m.ask(first.status_text, task=first)
        end = await m.ask(second.status_text, task=second)
    assert {first.status_text, second.status_text} == {"left?", "right?"}
    assert end.text == "['LEFT?', 'RIGHT?']"


async def test_a_subgraph_resumes_at_its_interrupt() -> None:
    runs: list[str] = []

    def before(state: Log) -> dict[str, Any]:
        runs.append("before")
        return {"log": ["before"]}

    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("deep?")]}

    subgraph = StateGraph(Log)
    subgraph.add_node("before", before)
    subgraph.add_node("ask", ask)
    subgraph.add_edge(START, "before")
    subgraph.add_edge("before", "ask")
    graph = StateGraph(Log)
    graph.add_node("below", subgraph.compile())
    graph.add_edge(START, "below")
    async with mesh(log_agent(graph.compile())) as m:
        waiting = await m.ask("go")
        assert (waiting.state, waiting.status_text) == (TaskState.INPUT_REQUIRED, "deep?")
        assert (await m.ask("yes", task=waiting)).text == "['before', 'yes']"
    assert runs == ["before"]


async def test_a_graph_that_stops_before_a_node_asks_to_continue() -> None:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
    model = ScriptedModel(AIMessage("", tool_calls=[call]), "It is 3.")
    async with mesh(graph_agent(react_graph(model, interrupt_before=["tools"]))) as m:
        waiting = await m.ask("1+2?")
        assert (waiting.state, waiting.status_text) == (
            TaskState.INPUT_REQUIRED,
            "Continue with tools?",
        )
        assert (await m.ask("yes", task=waiting)).text == "It is 3."


async def test_an_interrupt_in_a_lost_checkpointer_fails_with_the_reason(tmp_path: Path) -> None:
    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("what?")]}

    def agent_with_new_checkpointer() -> FunctionAgent:
        graph = StateGraph(Log)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        return log_agent(graph.compile(checkpointer=InMemorySaver()))

    async with mesh(agent_with_new_checkpointer(), data_dir=tmp_path) as m:
        waiting = await m.ask("go")
    async with mesh(agent_with_new_checkpointer(), data_dir=tmp_path) as m:
        answer = await m.ask("this", task=waiting)
    assert (answer.state, answer.status_text) == (
        TaskState.FAILED,
        "its state was lost; ask again",
    )


async def test_review_requests_become_approvals() -> None:
    def call(state: Log) -> dict[str, Any]:
        calls = [{"name": "delete", "args": {"file": name}} for name in "abc"]
        return {"log": [interrupt({"action_requests": calls, "review_configs": []})]}

    async with mesh(log_agent(parallel_graph(call))) as m:
        waiting = await m.ask("go")
        assert len(waiting.approvals) == 3
        assert waiting.approvals[0].requested.tool == "delete"
        unclear = await m.ask("what?", task=waiting)
        assert unclear.state is TaskState.INPUT_REQUIRED
        partly = await m.ask("approve 1", task=waiting)
        assert (partly.state, len(partly.approvals)) == (TaskState.INPUT_REQUIRED, 2)
        end = await m.ask('edit 2 {"file": "x"}\nreject 3 not that', task=waiting)
    decisions = [
        {"type": "approve"},
        {"type": "edit", "edited_action": {"name": "delete", "args": {"file": "x"}}},
        {"type": "reject", "message": "not that"},
    ]
    assert end.text == repr([{"decisions": decisions}])


def join_texts(messages: Sequence[BaseMessage]) -> str:
    return " ".join(str(message.text) for message in messages)


@pytest.mark.parametrize("has_checkpointer", [False, True])
async def test_a_conversation_of_a_context_survives_a_restart(
    tmp_path: Path, *, has_checkpointer: bool
) -> None:
    own_limit = {"checkpointer": InMemorySaver()} if has_checkpointer else {}
    model = ScriptedModel("one", "two", join_texts, join_texts)
    agent = graph_agent(react_graph(model, **own_limit))
    async with mesh(agent, data_dir=tmp_path) as m:
        first = await m.ask("a")
        await m.ask("b", context=first)
    async with mesh(agent, data_dir=tmp_path) as m:
        assert (await m.ask("c", context=first)).text == "a one b two c"
        assert (await m.ask("d")).text == "d"


@pytest.mark.parametrize("has_checkpointer", [False, True])
async def test_a_conversation_continues_on_a_host_whose_clock_is_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, has_checkpointer: bool
) -> None:
    own = {"checkpointer": InMemorySaver()} if has_checkpointer else {}
    agent = graph_agent(react_graph(ScriptedModel("one", "two", join_texts), **own))
    async with mesh(agent, data_dir=tmp_path) as m:
        first = await m.ask("a")
    # LangGraph makes ids of checkpoints of the time, and of the last one of the process.
    behind = SimpleNamespace(time_ns=lambda: time.time_ns() - 10**12)
    monkeypatch.setattr(checkpoint_ids, "time", behind)
    monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", None)
    async with mesh(agent, data_dir=tmp_path) as m:
        assert (await m.ask("b", context=first)).text == "two"
        assert (await m.ask("c", context=first)).text == "a one b two c"


async def test_a_waiting_task_blocks_no_other_and_no_message_is_lost() -> None:
    def node(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].text == "wait":
            return {"messages": [AIMessage(str(interrupt("for what?")))]}
        return {"messages": [AIMessage(join_texts(state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    async with mesh(graph_agent(graph.compile())) as m:
        waiting = await m.ask("wait")
        assert (await m.ask("a", context=waiting)).text == "a"
        assert (await m.ask("for this", task=waiting)).text == "for this"
        assert (await m.ask("b", context=waiting)).text == "a a wait for this b"


async def test_failed_and_canceled_turns_leave_no_messages_in_the_conversation() -> None:
    started = asyncio.Event()

    async def node(state: MessagesState) -> dict[str, Any]:
        match state["messages"][-1].text:
            case "fail":
                raise ValueError("a secret")
            case "hang":
                started.set()
                await asyncio.Event().wait()
        return {"messages": [AIMessage(join_texts(state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    private = {"capture_content": False}
    async with mesh(graph_agent(graph.compile()), settings=private) as m:
        first = await m.ask("a")
        failed = await m.ask("fail", context=first)
        assert failed.state is TaskState.FAILED
        assert "secret" not in failed.status_text
        running = await m.submit("hang", context=first)
        await started.wait()
        assert (await m.cancel(running)).state is TaskState.CANCELED
        assert (await m.ask("b", context=first)).text == "a a b"


@pytest.mark.parametrize(
    ("own_limit", "step_limit", "limit"), [(None, None, 250), (7, None, 7), (7, 5, 5)]
)
async def test_an_endless_graph_is_stopped(
    own_limit: int | None, step_limit: int | None, limit: int
) -> None:
    graph = StateGraph(Log)
    graph.add_node("again", lambda state: {"log": [1]})
    graph.add_edge(START, "again")
    graph.add_edge("again", "again")
    compiled = graph.compile()
    if own_limit is not None:
        compiled = compiled.with_config(recursion_limit=own_limit)
    async with mesh(log_agent(compiled, step_limit=step_limit)) as m:
        answer = await m.ask("go")
    assert answer.state is TaskState.FAILED
    assert f"did not finish within {limit} steps" in answer.status_text


async def test_nodes_get_the_context_built_from_the_task() -> None:
    class City(BaseModel):
        city: str

    class Deps(TypedDict):
        city: str
        caller: str

    def node(state: Log, runtime: Runtime[Deps]) -> dict[str, Any]:
        return {"log": [runtime.context["city"], get_runtime(Deps).context["caller"]]}

    def context(task: TaskContext[City]) -> Deps:
        return Deps(city=task.settings.city, caller=task.caller)

    async def step_limit(task: TaskContext[City]) -> dict[str, str]:
        return {"question": task.text}

    graph = StateGraph(Log, context_schema=Deps)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    agent = graph_agent(
        graph.compile(),
        settings=City,
        context=context,
        input=step_limit,
        output=lambda state: repr(state["log"]),
    )
    async with mesh(agent, options={"graph": {"city": "Oslo"}}) as m:
        assert (await m.ask("go")).text == "['Oslo', '']"


async def test_files_reach_the_model_as_content_blocks() -> None:
    def block(messages: Sequence[BaseMessage]) -> str:
        return repr(messages[-1].content)

    agent = graph_agent(react_graph(ScriptedModel(block)), input_modes=["text/plain", "image/png"])
    image = Part(raw=b"png", media_type="image/png", filename="a.png")
    async with mesh(agent) as m:
        answer = await m.ask("what is it?", image)
    assert eval(answer.text) == [  # noqa: S307  the answer is the output of repr
        {"type": "text", "text": "what is it?"},
        {
            "type": "image",
            "mime_type": "image/png",
            "extras": {"filename": "a.png"},
            "base64": "cG5n",
        },
    ]


def test_an_invalid_graph_is_refused_with_the_reason() -> None:
    graph: Any = StateGraph(Log)
    with pytest.raises(ConfigurationError, match=r"graph\.compile\(\)"):
        graph_agent(graph)
    with pytest.raises(ConfigurationError, match="input= and output="):
        graph_agent(parallel_graph(lambda state: {}))
