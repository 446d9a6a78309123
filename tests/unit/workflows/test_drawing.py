"""Drawings of workflows agree with the graph that runs."""

from xml.etree.ElementTree import Element, fromstring

import pytest
from langgraph.graph.state import CompiledStateGraph

from harness.workflows.files import PARALLEL, REVIEW
from trunkline.workflows.builders import (
    WorkflowBuilder,
    dump_workflow,
    save_workflow,
    workflow_to_dict,
)
from trunkline.workflows.compiler import WorkflowGraph, compile_workflow
from trunkline.workflows.definition import Workflow
from trunkline.workflows.differences import list_differences
from trunkline.workflows.drawing import RunPath, draw_mermaid, draw_svg
from trunkline.workflows.reader import parse_source
from trunkline.workflows.validation import load_workflow, load_workflow_dict, validate_source


def read(text: str) -> Workflow:
    workflow = validate_source(parse_source(text.encode(), "w.yaml")).workflow
    assert workflow is not None
    return workflow


def edges_of_graph(graph: WorkflowGraph, end: str = "__end__") -> set[tuple[str, str]]:
    """Return the edges of LangGraph's drawing, without its start, end, branches and joins.

    A branch is a graph of its own; `end` is the node that runs when it has ended.
    """
    targets: dict[str, list[str]] = {}
    for edge in graph.get_graph().edges:
        targets.setdefault(edge.source, []).append(edge.target)
    branches = dict(graph.get_subgraphs())
    edges: set[tuple[str, str]] = set()
    for source in targets.keys() - {"__start__"}:
        for target in targets[source] if "." not in source else ():
            if "." in target:
                (join,) = targets[target]
                (after,) = targets[join]
                after = end if after == "__end__" else after
                branch = branches[target]
                assert isinstance(branch, CompiledStateGraph)
                (first,) = (e.target for e in branch.get_graph().edges if e.source == "__start__")
                edges |= {(source, first)} | edges_of_graph(branch, after)
            else:
                edges.add((source, end if target == "__end__" else target))
    return {edge for edge in edges if "__end__" not in edge}


def parse_svg(svg: str) -> Element:
    return fromstring(svg)  # noqa: S314  our own text


def edges_of_svg(svg: str) -> set[tuple[str, str]]:
    paths = parse_svg(svg).iter("{http://www.w3.org/2000/svg}path")
    return {
        (path.attrib["data-from"], path.attrib["data-to"])
        for path in paths
        if "data-from" in path.attrib
    }


@pytest.mark.parametrize("text", [REVIEW, PARALLEL])
def test_the_drawing_of_the_compiled_graph_agrees(text: str) -> None:
    workflow = read(text)
    assert edges_of_svg(draw_svg(workflow)) == edges_of_graph(compile_workflow(workflow))
    mermaid = draw_mermaid(workflow)
    assert mermaid.count("-->") == len(workflow.edges)
    for node in workflow.nodes:
        assert f'"{node.id}' in mermaid


def test_the_path_of_a_run_is_marked() -> None:
    path = RunPath(("start", "draft", "score", "check"), failed="draft")
    workflow = read(REVIEW)
    mermaid = draw_mermaid(workflow, path)
    assert "class n0,n1,n2,n3 visited" in mermaid
    assert "class n1 failed" in mermaid
    assert "linkStyle 0,1,2,4 " in mermaid
    svg = draw_svg(workflow, path)
    assert svg.count('class="visited"') == 3
    assert svg.count('class="failed"') == 1


def test_texts_can_not_break_a_drawing() -> None:
    value = workflow_to_dict(read(REVIEW))
    value["nodes"][1]["agent"] = '"]; <script>alert(1)</script> --> x'
    workflow = load_workflow_dict(value)
    assert "<script" not in draw_svg(workflow)
    assert "<script" not in draw_mermaid(workflow)
    assert parse_svg(draw_svg(workflow)).tag.endswith("svg")


def test_a_loop_in_front_of_a_parallel_node_is_validated() -> None:
    value = workflow_to_dict(read(PARALLEL))
    value["nodes"].append({"id": "again", "type": "condition", "handler": "json:loads"})
    value["edges"][-1]["to"] = "again"
    value["edges"] += [
        {"from": "again", "to": "outer", "condition": "true"},
        {"from": "again", "to": "end", "condition": "false"},
    ]
    assert load_workflow_dict(value).edges[-1].target == "end"


def test_nodes_of_a_drawing_do_not_overlap() -> None:
    root = parse_svg(draw_svg(read(PARALLEL)))
    places = [
        (text.attrib["x"], text.attrib["y"])
        for group in root.iter("{http://www.w3.org/2000/svg}g")
        for text in list(group)[1:2]
    ]
    assert len(set(places)) == len(places) == 10


def build_review() -> WorkflowBuilder:
    return (
        WorkflowBuilder("review", limits={"steps": 20})
        .start()
        .agent("draft", "writer", "${input.text}")
        .agent("score", "reviewer")
        .condition("check", {"good": "nodes.score.data.score >= 80"}, otherwise="bad")
        .edge("check", "draft", "bad")
        .action("tell", "broadcast", when="good")
        .end()
    )


def test_a_builder_gives_what_a_file_gives() -> None:
    workflow = build_review().build()
    assert [edge.condition for edge in workflow.edges] == ["", "", "", "bad", "good", ""]
    for file_format in ("yaml", "json"):
        text = dump_workflow(workflow, file_format)
        again = validate_source(parse_source(text.encode(), f"w.{file_format}"))
        assert again.workflow == workflow, again.faults


def test_a_workflow_is_saved_and_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("workflows")
    for name in ("w.yaml", "w.json"):
        save_workflow(read(PARALLEL), folder / name)
        assert load_workflow(folder / name) == read(PARALLEL)


def test_differences_name_nodes_edges_and_fields() -> None:
    old = build_review().build()
    changed = workflow_to_dict(old)
    changed["version"] = 2
    changed["limits"]["steps"] = 30
    changed["nodes"][1]["timeout"] = "5s"
    changed["nodes"].insert(2, {"id": "wait", "type": "wait", "duration": "1s"})
    changed["edges"][1] = {"from": "draft", "to": "wait"}
    changed["edges"].append({"from": "wait", "to": "score"})
    assert list_differences(old, load_workflow_dict(changed)) == [
        "~ version: 1 -> 2",
        "~ limits.steps: 20 -> 30",
        '+ node draft: timeout = "5s"',
        "+ node wait (wait)",
        "- edge draft -> score",
        "+ edge draft -> wait",
        "+ edge wait -> score",
    ]
    assert list_differences(old, old) == []
