"""Plans from a model are parsed, repaired, refused, and rendered while they stream."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.utils.json import parse_partial_json

from harness.mesh.bundled_cards import shipped_cards
from trunkline.agents.reasoning.models import UnusableReplyError
from trunkline.supervisor.answer import render_plan
from trunkline.supervisor.plan_parser import parse_plan, render_partial_plan
from trunkline.supervisor.planning import MAX_STEPS
from trunkline.supervisor.roster import Roster
from trunkline.supervisor.steps import Step

ROSTER = Roster(shipped_cards())
REQUEST = "15% of 240 USD in EUR"


def parse_steps(*steps: object) -> tuple[Step, ...]:
    return parse_plan({"steps": list(steps)}, REQUEST, ROSTER, planner="openai:any")


def step(agent: str = "math", text: object = "1+2", **rest: object) -> dict[str, object]:
    return {"agent": agent, "text": text, **rest}


@pytest.mark.parametrize(
    ("text", "after", "expected_text", "waits_for"),
    [
        ("convert {1} USD", [1], "convert {1} USD", ("step-1",)),
        ("convert {1} USD", None, "convert {1} USD", ("step-1",)),
        ("convert {{1}} USD", ["1"], "convert {1} USD", ("step-1",)),
        ("convert {step_1.result} USD", ["step-1"], "convert {1} USD", ("step-1",)),
        ("convert that to EUR", [1], "convert that to EUR\n{1}", ("step-1",)),
        ("sum it up", 1, "sum it up\n{1}", ("step-1",)),
        ("sum up", [2, 1], "sum up\n{1}\n{2}", ("step-1", "step-2")),
        ("of {1} and the rest", [1, 2], "of {1} and the rest\n{2}", ("step-1", "step-2")),
        ("the set {7} and {3}", [], "the set {7} and {3}", ()),
    ],
)
def test_references_of_a_step_are_normalized(
    text: str, after: object, expected_text: str, waits_for: tuple[str, ...]
) -> None:
    *_, last = parse_steps(step(), step(), step("currency", text, after=after))

    assert (last.text, last.after) == (expected_text, waits_for)
    assert set(last.needed_steps) == set(waits_for)


def test_small_mistakes_are_repaired() -> None:
    (plan_step,) = parse_steps(step(" @Math ", ""))

    assert (plan_step.agent, plan_step.text) == ("math", REQUEST)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "it has no steps"),
        ([step("admin")], "step 1 is for 'admin'; there are only: argocd, currency, echo"),
        ([step(), step("math", "  ")], "step 2 does not say what to ask math"),
        ([step(), step("math", 7)], "step 2 does not say what to ask math"),
        (["1+2", step()], "step 1 is not an object"),
        ([step(after=[1])], "step 1 waits for 1, which is not another step"),
        ([step(after=[9])], "step 1 waits for 9, which is not another step"),
        ([step(after=[2]), step(after=[1])], "its steps wait for each other"),
        ([step("math", "{2}"), step("math", "{1}")], "its steps wait for each other"),
        ([step()] * (MAX_STEPS + 1), f"it has {MAX_STEPS + 1} steps; at most {MAX_STEPS} may be"),
        ([step(), step("math", "x" * 40_000)], "the text of step 2 is too long"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_with_the_reason(
    steps: list[object], problem: str
) -> None:
    with pytest.raises(UnusableReplyError) as caught:
        parse_steps(*steps)

    assert str(caught.value).startswith(problem)


@given(
    st.dictionaries(
        st.sampled_from(["steps", "plan"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(st.sampled_from(["agent", "text", "after"]), inner, max_size=3)
            ),
            max_leaves=12,
        ),
    )
)
def test_any_call_is_a_plan_or_is_refused(arguments: dict[str, Any]) -> None:
    render_partial_plan(arguments, ROSTER)
    with suppress(UnusableReplyError):
        steps = parse_plan(arguments, REQUEST, ROSTER, planner="x")
        assert all(plan_step.agent in ROSTER.cards for plan_step in steps)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["math", "currency", "echo"]),
            st.text(
                st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=120
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_partial_plan_of_a_streaming_call_is_a_prefix_of_the_plan(
    planned: list[tuple[str, str]],
) -> None:
    arguments = {"steps": [{"agent": agent, "text": text} for agent, text in planned]}
    call = json.dumps(arguments, ensure_ascii=False)
    shown = ""
    for end in range(1, len(call) + 1, 3):
        partial = parse_partial_json(call[:end])
        text = render_partial_plan(partial, ROSTER) if isinstance(partial, dict) else ""
        if text.startswith(shown):
            shown = text
    try:
        steps = parse_plan(arguments, REQUEST, ROSTER, planner="x")
    except UnusableReplyError:
        return
    assert render_plan(steps).startswith(shown)
