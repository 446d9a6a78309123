"""Faults of workflow files: each is found, at its place, with what would be right."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from harness.workflows.files import DICTIONARY, PARALLEL, REVIEW
from trunkline.core.source_documents import MAX_FAULTS, Fault
from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import BUILT_IN_ACTIONS
from trunkline.workflows.nodes import ACTIONS
from trunkline.workflows.reader import convert_source, parse_source
from trunkline.workflows.validation import MeshNames, load_workflow, validate_source

NAMES = MeshNames(
    agents=frozenset({"writer", "reviewer"}),
    tools={
        "math/add": {
            "type": "object",
            "required": ["values"],
            "properties": {"values": {"type": "array", "items": {"type": "number"}}},
            "additionalProperties": False,
        }
    },
    workflows={"other": {"required": ["text"], "properties": {"text": {"type": "string"}}}},
)


def find_faults(text: str, names: MeshNames | None = None) -> list[Fault]:
    return list(validate_source(parse_source(text.encode(), "w.yaml"), names).faults)


def change(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


# The file, what is changed in it, the part of the new file whose line is named, and the fault.
FAULTS = [
    (
        REVIEW,
        "id: start, type: start",
        "id: start, type: action, set: {a: 1}",
        "nodes:",
        "no start",
    ),
    (
        REVIEW,
        "id: tell, type: action, handler: broadcast, config: {room: main}",
        "id: tell, type: start",
        "id: tell",
        "second start; the first one is in line 10",
    ),
    (PARALLEL, "{id: end, type: end}", "{id: end, type: action, set: {a: 1}}", "nodes:", "no end"),
    (
        REVIEW,
        "  - {from: ask, to: refused, condition: rejected}\n",
        "",
        "{id: ask",
        "label 'rejected' has no edge; add one with `condition: rejected`",
    ),
    (REVIEW, "  - {from: draft, to: score}\n", "", "id: score", "not reachable"),
    (REVIEW, "  - {from: tell, to: end}\n", "", "id: tell", "no edge to follow when it succeeds"),
    (
        REVIEW,
        "condition: again",
        "condition: againx",
        "condition: againx",
        "never has the label 'againx'; did you mean 'again'?",
    ),
    (REVIEW, "to: score", "to: scor", "to: scor", "there is no node 'scor'; did you mean 'score'?"),
    (
        REVIEW,
        "id: keep,",
        "id: draft,",
        "id: draft, type: action",
        "also the id of the node in line 11",
    ),
    (
        REVIEW,
        "type: agent, agent: writer",
        "type: agnet, agent: writer",
        "agnet",
        "did you mean 'agent'?",
    ),
    (
        REVIEW,
        "agent: reviewer",
        "agent: reviewer, messagge: x",
        "messagge",
        "did you mean 'message'?",
    ),
    (REVIEW, "timeout: 30s", "timeout: 30", "timeout: 30", "has to be a text"),
    (REVIEW, "timeout: 30s", "timeout: soon", "timeout: soon", "'soon' is not a time such as 30s"),
    (REVIEW, "id: check", "id: nodes", "id: nodes", "is reserved"),
    (REVIEW, "id: check", "id: a/b", "id: a/b", "'a/b' is not up to 63 letters, digits"),
    (
        PARALLEL,
        '"${last.text}"',
        """'${nodes["a-b"].text}'""",
        "a-b",
        '`nodes["a-b"]`: there is no node',
    ),
    (PARALLEL, "id: late", "id: outer.0", "id: outer.0", "'outer.0' is reserved"),
    (PARALLEL, "id: late", "id: inner.join", "id: inner.join", "'inner.join' is reserved"),
    (REVIEW, "steps: 30", "steps: 0", "steps: 0", "greater than or equal to 1"),
    (REVIEW, "name: review", "name: Review it", "name: Review it", "letters, digits"),
    (REVIEW, "{type: integer}", "{type: integr}", "integr", "is no JSON Schema"),
    (REVIEW, "{type: integer}", '{pattern: "(?=a)"}', "pattern", "in the syntax of RE2"),
    (REVIEW, "{type: integer}", '{$ref: "#/no", default: 1}', "$ref", "Schema that can be checked"),
    (REVIEW, "{type: integer}", '{$ref: "https://example.com/s"}', "$ref", "is outside this file"),
    (
        REVIEW,
        '"nodes.score.data.score >= 80"',
        '"nodes.score.data.score >="',
        "score >=",
        "is not CEL: column 26",
    ),
    (
        REVIEW,
        "steps < 12",
        "stps < 12",
        "stps",
        "column 1: unknown variable 'stps'; did you mean 'steps'?",
    ),
    (
        REVIEW,
        "steps < 12",
        "sizee(data) < 12",
        "sizee(",
        "unknown function 'sizee'; did you mean 'size'?",
    ),
    (
        REVIEW,
        "${input.text}",
        "${input.txt}",
        "input.txt",
        "has no property 'txt'; did you mean 'text'?",
    ),
    (REVIEW, "${input.text}", "${input.text", "${input.text", "has no end"),
    (
        REVIEW,
        "${input.text}",
        "${nodes.keep.text}",
        "nodes.keep",
        "'keep' can't have run before 'draft'",
    ),
    (REVIEW, "${input.text}", "${nodes.drat.text}", "nodes.drat", "did you mean 'draft'?"),
    (
        REVIEW,
        "${input.text}",
        "${last.txt}",
        "last.txt",
        "`last` has no 'txt'; did you mean 'text'?",
    ),
    (REVIEW, "${input.text}", "${data.a}", "data.a", "no action before this node sets it"),
    (REVIEW, "${input.text}", "${message.a}", "message.a", "only for the `when` of a wait"),
    (REVIEW, "handler: broadcast", "handler: broadcst", "broadcst", "did you mean 'broadcast'?"),
    (REVIEW, "handler: broadcast", "handler: send", "config", "`recipient` is missing"),
    (REVIEW, "handler: broadcast", 'handler: "nosuch:f"', "nosuch", "there is no module 'nosuch'"),
    (
        REVIEW,
        "handler: broadcast",
        'handler: "json:dumsp"',
        "dumsp",
        "no 'dumsp'; did you mean 'dump'?",
    ),
    (
        REVIEW,
        "agent: writer",
        "agent: writr",
        "writr",
        "the mesh has no agent 'writr'; did you mean 'writer'?",
    ),
    (REVIEW, "priority: 2", "priority: high", "priority: high", "valid integer"),
    (
        REVIEW,
        "  - {from: draft, to: score}\n",
        "  - {from: draft, to: score}\n  - {from: draft, to: end}\n",
        "{from: draft, to: end}",
        "is never followed",
    ),
    (
        REVIEW,
        "description: A",
        "name: again\ndescription: A",
        "name: again",
        "is there twice, first in line 1",
    ),
    (
        PARALLEL,
        "tool: math/add",
        "tool: math/ad",
        "math/ad",
        "no tool 'math/ad'; did you mean 'math/add'?",
    ),
    (PARALLEL, "{values: [1,", "{values: [one,", "values: [one", "'one' is not of type 'number'"),
    (
        PARALLEL,
        '{values: [1, "${input.number}"]}',
        "{values: [one]}",
        "one",
        "'one' is not of type 'number'",
    ),
    (PARALLEL, "{values: [1", "{value: [1", "value: [1", "there is no argument 'value'"),
    (PARALLEL, 'inputs: {text: "${last.text}"}', "inputs: {}", "inputs: {}", "'text' is missing"),
    (PARALLEL, "workflow: other", "workflow: both", "workflow: both", "is this workflow itself"),
    (PARALLEL, "join: met}", "join: mat}", "join: mat", "did you mean 'met'?"),
    (
        PARALLEL,
        "{from: late, to: met}",
        "{from: late, to: end}",
        "{from: late, to: end}",
        "branches meet only at their join",
    ),
    (
        PARALLEL,
        "{from: a, to: merge}",
        "{from: a, to: met}",
        "{from: a, to: met}",
        "in branch 1 of 'outer'",
    ),
    (
        PARALLEL,
        "{from: inner, to: c}",
        "{from: inner, to: c, condition: x}",
        "condition: x",
        "all edges of a parallel node",
    ),
    (PARALLEL, "  - {from: outer, to: a}\n", "", "id: outer", "less than two branches"),
    (REVIEW, "{room: main}", "{<<: main}", "<<", "is a merge key"),
    (REVIEW, "steps < 12", "size(3) > 1", "size(3)", "`size` does not take these values"),
    (REVIEW, "steps < 12", "'x' + 1 == ''", "'x' + 1", "string + int; convert with int(x)"),
    (
        REVIEW,
        "steps < 12 && has(nodes.draft)",
        "input.rounds",
        "input.rounds",
        "`input.rounds` is an integer; a condition has to be true or false",
    ),
    (REVIEW, "steps < 12", "input.text > 3", "text > 3", "`input.text` is a string"),
    (REVIEW, "steps < 12", "nodes.draft.text.x", "text.x", "`nodes.draft.text` is a string"),
    (
        REVIEW,
        "${input.text}",
        "${input.rounds + input.text}",
        "input.rounds + input.text",
        "`input.rounds` is an integer; `input.text` is a string",
    ),
    (REVIEW, "room: main", 'room: "${data.stop + 1}"', "data.stop", "`data.stop` is a boolean"),
    (REVIEW, "${input.text}", "a ${input.x} ${1 +}", "${1 +}", "`1 +`: is not CEL: column 4"),
    (
        PARALLEL,
        '[1, "${input.number}"]',
        '["${last.text}"]',
        "last.text",
        "is a string, and has to be of type number",
    ),
    (PARALLEL, 'when: "message.data.ok == true"', 'when: "last.ok"', "last.ok", "has no 'ok'"),
]


@pytest.mark.parametrize(
    ("text", "old", "new", "place", "problem"), FAULTS, ids=[case[4][:40] for case in FAULTS]
)
def test_a_fault_is_found_at_its_line(
    text: str, old: str, new: str, place: str, problem: str
) -> None:
    changed = change(text, old, new)
    faults = find_faults(changed, NAMES)
    matching = [fault for fault in faults if problem in fault.problem]
    assert matching, faults
    assert line_of(changed, place) in {fault.line for fault in matching}, matching


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("student_teacher_review", True),
        ("Review.v2-b", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ('".."', False),
        (".hidden", False),
        ("a/b", False),
    ],
)
def test_a_workflow_has_the_name_of_an_agent(name: str, is_valid: bool) -> None:
    faults = find_faults(change(REVIEW, "name: review", f"name: {name}"))
    assert [fault.where for fault in faults] == ([] if is_valid else ["name"])


def test_faults_elsewhere_hide_no_fault_of_a_variable() -> None:
    text = change(REVIEW, "${input.text}", "${input.txxt} ${nodes.keep.text} ${data.stop}")
    hiding = (
        ("steps: 30", "steps: 0"),
        ("type: integer}", "type: integr}"),
        ("timeout: 30s", "timeout: soon"),
        ("to: score", "to: gone"),
        ("condition: rejected}\n", "condition: rejected}\n  - {from: end, to: draft}\n"),
        ("priority: 2", "priority: high"),
    )
    for old, new in hiding:
        problems = " ".join(fault.problem for fault in find_faults(change(text, old, new)))
        for part in ("'txxt'", "'keep' can't have run before", "`data.stop`: no action before"):
            assert part in problems, (new, problems)
    # The broken edge may lead to the node, so what comes before it may have run.
    text = change(text, "from: tell, to: end}", "from: tell, to: gone}")
    problems = " ".join(fault.problem for fault in find_faults(text))
    assert "'txxt'" in problems
    assert "'keep'" not in problems
    assert "there is no node 'gone'; there are: ask, check" in problems


def test_a_file_of_many_faults_is_refused_with_the_first_ones() -> None:
    count = 1000
    nodes = "".join(f"- {{id: n{number}, type: end}}\n" for number in range(count))
    edges = "".join(f"- {{from: n{number}, to: gone{number}}}\n" for number in range(count))
    faults = find_faults(f"name: x\nnodes:\n- {{id: '', type: start}}\n{nodes}edges:\n{edges}")
    assert len(faults) == MAX_FAULTS


@pytest.mark.parametrize(
    ("output", "schema", "problem"),
    [
        ("{a: text}", "{a: {type: integer}}", "'text' is not of type 'integer'"),
        ('{a: "${input.text}"}', "{a: {type: integer}}", "is a string, and has to be of type inte"),
        ('{a: "${input.rounds}"}', "{a: {type: string}}", "is an integer, and has to be of type s"),
        ('{a: "n ${input.rounds}"}', '{a: {type: [integer, "null"]}}', "is a string, and has"),
        (
            '{a: {b: ["${size(input.text)}"]}}',
            "{a: {properties: {b: {items: {type: string}}}}}",
            "is",
        ),
        ('{b: "${input.text}"}', "{a: {}}", "'a' is missing, which is required"),
        ('"${input.rounds}"', "{a: {}}", "is an integer, and has to be of type object"),
        ('"${input.text}"', "{a: {}}", "'a' is missing, which is required"),
        ('{a: "${input.rounds}"}', "{a: {type: number}}", ""),
        ('{a: "${input.rounds > 1 ? 1 : input.text}"}', "{a: {type: string}}", ""),
        ('{a: "${nodes.score.data.score}"}', "{a: {type: string}}", ""),
        ('{a: "${input.text}"}', '{a: {$ref: "#/no"}}', ""),
        ("{a: text}", '{a: {$ref: "#/no"}}', ""),
    ],
)
def test_an_answer_that_does_not_fit_the_outputs_is_found(
    output: str, schema: str, problem: str
) -> None:
    outputs = f"outputs: {{type: object, required: [a], properties: {schema}}}"
    text = change(REVIEW, "limits:", f"{outputs}\nlimits:")
    text = change(text, 'type: end, output: "${nodes.draft.text}"', f"type: end, output: {output}")
    found = [fault.problem for fault in find_faults(text)]
    assert len(found) == bool(problem), found
    assert all(each.startswith(problem) for each in found), found


@pytest.mark.parametrize(
    "expression",
    [
        "input.text == 'x' || input.rounds > 3",
        "has(input.rounds) ? input.rounds > 1 : false",
        "int(input.text) / (input.rounds - 1) > 2",
        "nodes.score.data.approved",
        "double(nodes.draft.value) > 2.0 && last.time > 1",
        "timestamp(input.text).getHours() > 3",
        "[1, 2].exists(x, x == input.rounds)",
        "[1][input.rounds] == 2",
        "has(nodes.draft) && nodes.draft.text.size() > 1",
    ],
)
def test_a_condition_that_may_be_right_has_no_fault(expression: str) -> None:
    assert find_faults(change(REVIEW, "steps < 12 && has(nodes.draft)", expression)) == []


@pytest.mark.parametrize("text", [REVIEW, PARALLEL])
def test_valid_files_have_no_faults(text: str) -> None:
    validation = validate_source(parse_source(text.encode(), "w.yaml"))
    assert validation.faults == ()
    assert "agents" in validation.unchecked or "tools" in validation.unchecked


@pytest.mark.parametrize("text", [REVIEW, PARALLEL])
def test_names_are_not_checked_twice_with_a_mesh(text: str) -> None:
    validation = validate_source(parse_source(text.encode(), "w.yaml"), NAMES)
    assert (validation.faults, validation.unchecked) == ((), ())


def test_a_loop_is_bounded_by_the_limit_of_steps() -> None:
    text = change(REVIEW, "limits: {steps: 30, time: 1h}\n", "")
    workflow = validate_source(parse_source(text.encode(), "w.yaml")).workflow
    assert workflow is not None
    assert workflow.limits.steps == 50


def test_the_dictionary_form_is_converted() -> None:
    validation = validate_source(convert_source(DICTIONARY, "student-teacher"))
    assert validation.workflow is not None, validation.faults
    assert validation.workflow.name == "student-teacher"
    assert [node.type for node in validation.workflow.nodes][1] == "agent"
    assert validation.workflow.edges[0].target == "student_proposes"
    assert validation.workflow.edges[3].condition == "true"


def test_a_run_of_the_dictionary_form_begins_at_its_start_node() -> None:
    nodes = DICTIONARY["nodes"][1:]
    edges = DICTIONARY["edges"][1:]
    form = {"nodes": nodes, "edges": edges, "start_node": "student-proposes"}
    validation = validate_source(convert_source(form))
    assert validation.workflow is not None, validation.faults
    start = validation.workflow.nodes[-1]
    assert (start.id, start.type) == ("start", "start")
    assert validation.workflow.edges[-1].source == "start"
    assert validation.workflow.edges[-1].target == "student_proposes"
    named = validate_source(convert_source({**DICTIONARY, "start_node": "start"}))
    assert named.workflow == validate_source(convert_source(DICTIONARY)).workflow


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("teachr", "there is no node 'teachr'; did you mean 'teacher'?"),
        ("teacher", "is 'teacher', but 'start' is a node of type start; name that one"),
        (["teacher"], "there is no node ['teacher']"),
    ],
)
def test_a_wrong_start_node_is_a_fault(start: object, problem: str) -> None:
    text = yaml.safe_dump({**DICTIONARY, "start_node": start}, sort_keys=False)
    (fault,) = find_faults(text)
    assert problem in fault.problem
    assert (fault.where, fault.line) == ("start_node", line_of(text, "start_node"))


def test_load_workflow_names_all_faults(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(change(change(REVIEW, "to: score", "to: scor"), "steps < 12", "stps < 1"))
    with pytest.raises(ConfigurationError, match=r"line 17: .*stps.*line 2\d: .*scor"):
        load_workflow(file)
    file.write_text(REVIEW)
    assert load_workflow(file).version == 2


def test_validation_runs_no_code_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    for name in ("evil_steps", "evil_package/__init__", "evil_package/steps"):
        module = tmp_path / f"{name}.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(f"open({str(marker)!r}, 'w')\ndef publish(last, context): ...\n")
    monkeypatch.chdir(tmp_path)
    for name in ("evil_steps", "evil_package.steps"):
        text = change(REVIEW, "handler: broadcast", f'handler: "{name}:publish"')
        assert find_faults(text) == []
        text = change(REVIEW, "handler: broadcast", f'handler: "{name}:publishh"')
        (fault,) = find_faults(text)
        assert re.search(r"did you mean 'publish'\?", fault.problem)
    assert not marker.exists()
    assert "evil_steps" not in sys.modules


def test_built_in_actions_are_those_that_run() -> None:
    assert set(BUILT_IN_ACTIONS) == set(ACTIONS)
