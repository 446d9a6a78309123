"""A plan as a workflow is valid, and its nodes read the results that the steps read."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.plans import plans
from harness.examples import share
from trunkline.supervisor.plan_export import (
    build_plan_workflow,
    find_references,
    format_node_id,
    write_template,
)
from trunkline.supervisor.steps import Step, fill_references
from trunkline.workflows.builders import workflow_to_dict
from trunkline.workflows.definition import AgentNode
from trunkline.workflows.expressions import Template
from trunkline.workflows.validation import load_workflow_dict


@given(plans())
@share(0.4)
def test_any_plan_is_a_valid_workflow_with_the_texts_of_its_steps(steps: list[Step]) -> None:
    workflow = build_plan_workflow(steps)

    load_workflow_dict(workflow_to_dict(workflow))
    messages = {node.id: node.message for node in workflow.nodes if isinstance(node, AgentNode)}
    assert messages.keys() == {format_node_id(step.id) for step in steps}
    answers = {step.id: f"= {step.id.removeprefix('step-')}" for step in steps}
    results = {format_node_id(name): {"text": answer} for name, answer in answers.items()}
    for step in steps:
        message = Template.parse(str(messages[format_node_id(step.id)]))
        needed = {each: answers[each] for each in step.needed_steps}
        assert message.render({"nodes": results}) == fill_references(step.text, needed)


@given(st.text(st.sampled_from("${}a \n"), max_size=12))
def test_the_text_around_references_is_kept_and_needs_no_library(text: str) -> None:
    reference = f"{text}{{1}}."
    values = {"nodes": {"step_1": {"text": "6 x 7 = 42 or so"}}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cel", None)

        alone = Template.parse(write_template(text, ())).render({})
        template = write_template(reference, find_references(reference, ("step-1",)))
        filled = Template.parse(template).render(values)

    assert alone == text
    assert filled == f"{text}42."
