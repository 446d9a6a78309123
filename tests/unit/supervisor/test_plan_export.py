"""The plan of a task becomes a workflow file, with values of the request as inputs."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.supervisor.plan_export import export_plan, has_files
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2
from trunkline.workflows.definition import AgentNode, EndNode, Workflow
from trunkline.workflows.expressions import Template
from trunkline.workflows.run_values import find_defaults, read_input

PlannedStep = tuple[str, str, Sequence[str]]


def planned(request: str, *steps: PlannedStep) -> snapshot_pb2.TaskSnapshot:
    """Return a supervisor's task with a plan, in which a later message answered a question."""
    snapshot = snapshot_pb2.TaskSnapshot(agent="supervisor")
    snapshot.task.id = "host-00aB12cD34"
    for text in (request, "yes"):
        message = snapshot.task.history.add(role=message_pb2.ROLE_USER)
        message.parts.add(text=text)
    plan = snapshot.plans.add(plan_id="plan-1")
    for number, (agent, text, after) in enumerate(steps, start=1):
        plan.steps.add(step_id=f"step-{number}", agent=agent, text=text, after=after)
        snapshot.routes.add(step_id=f"step-{number}", agent=agent)
    return snapshot


def messages(workflow: Workflow) -> list[str]:
    """Return the messages to the agents, in the order of the steps."""
    nodes = {node.id: node for node in workflow.nodes if isinstance(node, AgentNode)}
    return [str(nodes[name].message) for name in sorted(nodes)]


def test_the_text_of_the_only_step_is_the_input() -> None:
    workflow = export_plan(planned("@math what is 2+2", ("math", "what is 2+2", ())))

    assert workflow.name == "plan-ab12cd34"
    assert workflow.description == "The plan for: @math what is 2+2"
    assert messages(workflow) == ["${input.text}"]
    empty = message_pb2.Message()
    empty.parts.add(text="{}")
    assert read_input(workflow, empty) == {"text": "what is 2+2"}


def test_numbers_and_quoted_texts_of_the_request_are_inputs_and_results_are_read() -> None:
    request = 'convert 100 USD to EUR, then multiply {1} by 2.50 and say "two or 2" and 007 and 2'
    workflow = export_plan(
        planned(
            request,
            ("currency", "convert 100 USD to EUR", ()),
            ("math", "multiply {1} by 2.50", ["step-1"]),
            ("echo", 'say "two or 2" and 007 and 2', ()),
            ("writer", "Write it anew with 2 and 9:\n{1}\n{2}x", ["step-1", "step-2"]),
        ),
        "saved",
    )

    assert workflow.name == "saved"
    assert messages(workflow) == [
        "convert ${input.number_1} USD to EUR",
        "multiply ${nodes.step_1.value} by ${input.number_2}",
        'say "${input.text_1}" and ${input.number_3} and ${input.number_4}',
        "Write it anew with ${input.number_4} and 9:\n${nodes.step_1.text}\n${nodes.step_2.value}x",
    ]
    assert workflow.inputs is not None
    assert workflow.inputs["properties"] == {
        "number_1": {"type": "number", "default": 100},
        "number_2": {"type": "string", "default": "2.50"},
        "text_1": {"type": "string", "default": "two or 2"},
        "number_3": {"type": "string", "default": "007"},
        "number_4": {"type": "number", "default": 2},
    }
    (end,) = [node for node in workflow.nodes if isinstance(node, EndNode)]
    assert end.output == "\n".join(f"${{nodes.step_{number}.text}}" for number in range(1, 5))


TEXTS = st.text(st.sampled_from('${}12.,"\N{LEFT DOUBLE QUOTATION MARK}a \n\\'), max_size=15)


@given(TEXTS, TEXTS)
def test_with_the_defaults_each_agent_gets_its_text_again(first: str, second: str) -> None:
    snapshot = planned(f"{first}, {second}", ("math", first, ()), ("echo", second, ()))

    workflow = export_plan(snapshot)

    values = {"input": find_defaults(workflow.inputs or {})}
    texts = [str(Template.parse(message).render(values)) for message in messages(workflow)]
    assert texts == [first, second]


def test_a_task_without_a_plan_says_why() -> None:
    plain = planned("hi")
    with pytest.raises(InvalidArgumentError, match="of agent 'supervisor', which is no supervisor"):
        export_plan(plain)
    plain.routes.add(step_id="step-1")
    with pytest.raises(InvalidArgumentError, match="asked back, or answered itself"):
        export_plan(plain)
    run = planned("hi")
    run.plans.add(plan_id="review@2", steps=[event_pb2.PlanStep(step_id="start")])
    with pytest.raises(InvalidArgumentError, match="a run of the workflow review@2"):
        export_plan(run)
    with pytest.raises(InvalidArgumentError, match='no agent fits its step "sing"'):
        export_plan(planned("1+1 and sing", ("math", "1+1", ()), ("", "sing", ())))
    with pytest.raises(ConfigurationError, match="'No Name' is not up to 63 letters"):
        export_plan(planned("1+1", ("math", "1+1", ())), "No Name")


def test_files_of_the_request_are_noticed() -> None:
    snapshot = planned("count these", ("math", "count these", ()))
    assert not has_files(snapshot)
    snapshot.task.history[0].parts.add(raw=b"1,2", filename="numbers.csv")
    assert has_files(snapshot)
