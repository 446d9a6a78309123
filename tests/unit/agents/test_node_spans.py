"""Spans of the nodes of a graph, and of authors' own code in them."""

import json
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from harness.mesh.recorded_spans import spans_in
from trunkline import FunctionAgent, TaskContext, TaskState, agent, from_langgraph
from trunkline.agents.reasoning.models.model import Model
from trunkline.testing import mesh


class State(TypedDict, total=False):
    text: str


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        yield memory


def own_span(name: str) -> None:
    with trace.get_tracer("author").start_as_current_span(name):
        pass


async def awaited(state: State) -> State:
    own_span("own work of an async node")
    return {"text": "a"}


def threaded(state: State) -> State:
    own_span("own work of a node in a thread")
    return {"text": "b"}


def inner_graph() -> Any:
    graph = StateGraph(State)
    graph.add_node("inner", threaded)
    graph.add_edge(START, "inner")
    return graph.compile()


def graph_agent(*nodes: tuple[str, Any]) -> FunctionAgent:
    """Return an agent whose graph runs these nodes one after the other."""
    graph = StateGraph(State)
    before = START
    for name, node in nodes:
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    return from_langgraph(
        graph.compile(),
        name="graph",
        description="Under test.",
        input=lambda task: {"text": task.text},
        output=lambda state: str(state.get("text")),
    )


def path_of(span: ReadableSpan, exporter: InMemorySpanExporter) -> list[str]:
    """Return the names of a span and of those above it, up to that of the agent."""
    spans = {found.context.span_id: found for found in exporter.get_finished_spans()}
    names = [span.name]
    while not names[-1].startswith("invoke_agent"):
        assert span.parent is not None
        span = spans[span.parent.span_id]
        names.append(span.name)
    return names


def paths(exporter: InMemorySpanExporter, start: str) -> list[list[str]]:
    return [
        path_of(span, exporter)
        for span in exporter.get_finished_spans()
        if span.name.startswith(start)
    ]


async def test_own_spans_are_below_their_node_also_in_threads_and_subgraphs(
    exporter: InMemorySpanExporter,
) -> None:
    nodes = (("first", awaited), ("second", threaded), ("third", inner_graph()))
    async with mesh(graph_agent(*nodes)) as m:
        assert (await m.ask("go")).text == "b"
    assert paths(exporter, "own") == [
        ["own work of an async node", "run_node first", "invoke_agent graph"],
        ["own work of a node in a thread", "run_node second", "invoke_agent graph"],
        [
            "own work of a node in a thread",
            "run_node inner",
            "run_node third",
            "invoke_agent graph",
        ],
    ]
    assert len(paths(exporter, "run_node")) == 4


async def test_a_failed_node_is_marked_and_an_interrupted_one_is_not(
    exporter: InMemorySpanExporter,
) -> None:
    async def ask(state: State) -> State:
        return {"text": interrupt("which?")}

    async def fail(state: State) -> State:
        raise ValueError("private text")

    async with mesh(graph_agent(("asks", ask), ("fails", fail))) as m:
        asked = await m.ask("go")
        assert asked.state == TaskState.INPUT_REQUIRED
        failed = await m.ask("this", task=asked)
        assert failed.state == TaskState.FAILED
    spans = {span.name: span for span in exporter.get_finished_spans() if "run_node" in span.name}
    assert spans["run_node asks"].status.status_code == StatusCode.UNSET
    assert spans["run_node fails"].status.status_code == StatusCode.ERROR
    assert "private text" not in str(spans["run_node fails"].to_json())


async def test_a_model_that_a_node_calls_has_one_span_below_it(
    exporter: InMemorySpanExporter,
) -> None:
    async def think(state: State) -> State:
        own = GenericFakeChatModel(messages=iter(["three"]))
        return {"text": str((await own.ainvoke("what is 1+2?")).text)}

    async def ask(state: State) -> State:
        # As task.ask_model does: it makes a span itself.
        model = Model.from_chat_model(GenericFakeChatModel(messages=iter(["four"])))
        return {"text": str((await model.ask([HumanMessage("what is 2+2?")])).text)}

    async with mesh(graph_agent(("thinks", think), ("asks", ask))) as m:
        answer = await m.ask("go")
    assert answer.state == TaskState.COMPLETED, answer
    assert paths(exporter, "chat") == [
        ["chat", "run_node thinks", "invoke_agent graph"],
        ["chat scripted", "run_node asks", "invoke_agent graph"],
    ]
    first, _ = [span for span in exporter.get_finished_spans() if span.name.startswith("chat")]
    assert first.attributes is not None
    assert first.attributes["trunkline.model.purpose"] == "graph"


async def test_request_and_answer_are_in_the_span_of_the_agent_if_captured(
    exporter: InMemorySpanExporter,
) -> None:
    @agent(name="repeating", description="Repeats.")
    async def repeating(task: TaskContext) -> str:
        return f"You said: {task.text}"

    for is_captured in (False, True):
        async with mesh(repeating, settings={"capture_content": is_captured}) as m:
            await m.ask("the secret: swordfish")
        (span,) = [
            span for span in exporter.get_finished_spans() if span.name == "invoke_agent repeating"
        ]
        attributes = dict(span.attributes or {})
        shown = (attributes.get("input.value"), attributes.get("output.value"))
        expected = ("the [redacted]", "You said: the [redacted]") if is_captured else (None, None)
        assert shown == expected
        assert "swordfish" not in str(attributes)
        exporter.clear()


async def test_data_is_in_the_span_of_the_agent_as_json(exporter: InMemorySpanExporter) -> None:
    @agent(name="scoring", description="Scores.", input_modes=["application/json"])
    async def scoring(task: TaskContext) -> dict[str, Any]:
        return {"approved": True, "score": 90}

    async with mesh(scoring, settings={"capture_content": True}) as m:
        await m.ask({"proposal": "a plan", "token": "hunter2"})
    (span,) = [span for span in exporter.get_finished_spans() if span.name.endswith(" scoring")]
    attributes = span.attributes or {}
    assert attributes["input.value"] == '{"proposal": "a plan", "[redacted]"}'
    assert attributes["output.value"] == '{"approved": true, "score": 90}'
    (reply,) = json.loads(str(attributes["gen_ai.output.messages"]))
    assert reply["parts"] == [{"type": "text", "content": attributes["output.value"]}]
