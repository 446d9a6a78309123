"""Requests are routed by tags and examples of cards, and split for several agents."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from harness.logs import find_logged
from harness.mesh.bundled_cards import shipped_cards
from trunkline.embeddings import EmbeddingModel
from trunkline.rules.planner import RulesPlanner
from trunkline.rules.routing import Router
from trunkline.supervisor.example_index import ExampleIndex
from trunkline.supervisor.roster import Roster
from trunkline.supervisor.steps import Step
from trunkline.v1 import agent_card_pb2

if TYPE_CHECKING:
    from trunkline.tasks.writers import PlanWriter

ROSTER = Roster(shipped_cards())
WRITER = cast("PlanWriter", None)


def card(
    name: str, *tags: str, examples: Sequence[str] = (), skill: str = "s"
) -> agent_card_pb2.AgentCard:
    skills = [agent_card_pb2.AgentSkill(id=skill, name=skill, tags=tags, examples=examples)]
    return agent_card_pb2.AgentCard(name=name, description=name, skills=skills)


async def plan(text: str, roster: Roster = ROSTER) -> tuple[Step, ...]:
    return (await RulesPlanner().plan(text, roster, WRITER)).steps


def route(text: str, *cards: agent_card_pb2.AgentCard) -> str:
    return Router(Roster(cards)).route(text).agent


@pytest.mark.parametrize(
    ("tag", "text", "fits"),
    [
        ("net pay", "what is my NET PAY", True),
        ("net pay", "what is my net salary", False),
        ("pay", "I am paying", False),
        ("# times", "3 times 4", True),
        ("# times", "the new york times", False),
        ("+", "1+2", True),
        ("+", "C++ and Java", False),
        ("-", "7 - 3", True),
        ("-", "on 2020-03-02 or e-mail", False),
        ("=", "x = 2", True),
        ("€", "5€", True),
        ("€", "the € sign", False),
        ("USD", "100usd", True),
    ],
)
def test_a_tag_matches_as_it_stands(tag: str, text: str, fits: bool) -> None:
    assert route(text, card("a", tag)) == ("a" if fits else "")


def test_the_agent_that_is_clearly_ahead_is_chosen_with_its_reasons() -> None:
    decision = Router(ROSTER).route("how much is 15% of 240")
    assert decision.agent == "math"
    assert decision.confidence > 0.8
    assert list(decision.reasons) == ["skill 'Arithmetic': %"]
    assert {score.agent for score in decision.scores} == set(ROSTER.cards)


def test_a_command_is_the_first_word_alone() -> None:
    cards = (card("echo", "echo", "command"), card("math", "+"))
    assert route("echo 1+2", *cards) == "echo"
    assert route("1+2 echo", *cards) == "math"


def test_an_example_with_other_numbers_fits() -> None:
    cards = (card("a", examples=["plan 3 trips"]), card("b", examples=["plan a party"]))
    assert route("Plan 12 trips.", *cards) == "a"
    assert route("plan a trip", *cards) == ""


def test_a_skill_of_a_tool_is_found_by_its_name() -> None:
    tool = card("weather", "by description", skill="getForecast")
    assert route("get forecast city: Rome", tool) == "weather"
    assert route("weather in Rome", tool) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "what is 15% of 240, and convert 36 USD to EUR",
            [("math", "what is 15% of 240"), ("currency", "convert 36 USD to EUR")],
        ),
        ("what is 1+2 and 3+4", [("math", "what is 1+2 and 3+4")]),
        ("convert 36 USD to EUR, please", [("currency", "convert 36 USD to EUR, please")]),
        ("1+2; then 5 USD in EUR", [("math", "1+2"), ("currency", "5 USD in EUR")]),
        ("show argocd version. 2^8?", [("argocd", "show argocd version."), ("math", "2^8?")]),
    ],
)
async def test_a_request_is_split_where_its_parts_are_for_other_agents(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert [(step.agent, step.text) for step in await plan(text)] == expected


async def test_a_step_behind_then_waits_and_may_have_the_result_before_it() -> None:
    first, second = await plan("15% of 240, then convert {1} USD to EUR")
    assert (first.after, second.after) == ((), (first.id,))
    assert second.needed_steps == (first.id,)


async def test_a_question_goes_to_the_agent_that_takes_any() -> None:
    roster = Roster([*shipped_cards(), card("library", "open questions")])
    assert [step.agent for step in await plan("who approves travel", roster)] == ["library"]
    assert [step.agent for step in await plan("what is 1+2", roster)] == ["math"]
    assert await plan("Nice weather today.", roster) == ()


async def test_the_default_agent_takes_what_fits_none() -> None:
    roster = Roster(shipped_cards(), default="echo")
    (step,) = await plan("nice weather", roster)
    assert (step.agent, list(step.route.reasons)[-1]) == ("echo", "this is the default agent")


async def test_a_request_for_no_agent_is_told_in_one_line_what_works() -> None:
    result = await RulesPlanner().plan("tell me a joke", ROSTER, WRITER)
    assert result.steps == ()
    assert result.question.startswith("I am the built-in rules model, and no agent's tags")
    assert 'math: "what is 1+2"' in result.question
    assert 'set a model: `model = "provider:name"`' in result.question
    assert "\n" not in result.question


async def test_agents_that_tie_are_named_in_the_question() -> None:
    roster = Roster([card("a", "tax"), card("b", "tax")])
    result = await RulesPlanner().plan("my tax", roster, WRITER)
    assert result.question.endswith("Begin with one of: @a, @b.")


@pytest.mark.parametrize(
    "text",
    ["and " * 62_500, "then, " * 40_000, "? " * 125_000, "1+" * 100_000, " " * 250_000],
)
async def test_a_long_request_takes_little_time(text: str) -> None:
    started = time.process_time()
    ROSTER.split_at_addresses(f"@math {text}")
    await RulesPlanner().plan(text, ROSTER, WRITER)
    # Quadratic code takes 28 s.
    assert time.process_time() - started < 2


def test_names_begin_a_request_and_split_it() -> None:
    first, second = ROSTER.split_at_addresses("@Math: 1+2, then @echo done")
    assert [(first.agent, first.text), (second.agent, second.text)] == [
        ("math", "1+2"), ("echo", "done"),
    ]  # fmt: skip
    assert second.after == (first.id,)
    assert ROSTER.split_at_addresses("ask @math what is 1+2") == ()
    assert ROSTER.find_unknown_address("@nobody hi") == "nobody"


EXAMPLES = (
    card("weather", "forecast", examples=["what will the weather be like in Oslo tomorrow"]),
    card("billing", "invoice", examples=["when is my bill due"]),
)


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("do I need an umbrella in Bergen next Tuesday", "weather"),
        ("by which date do I have to pay you", "billing"),
        ("who painted the ceiling of the Sistine Chapel", ""),
        # A tag decides alone, though an example of another agent is nearer.
        ("does the invoice say what the weather was", "billing"),
    ],
)
async def test_with_embeddings_the_nearest_example_takes_what_no_tag_fits(
    text: str, agent: str
) -> None:
    planner = RulesPlanner(ExampleIndex(EmbeddingModel(name="local:minilm")))

    planned = await planner.plan(text, Roster(EXAMPLES), WRITER)

    assert [step.agent for step in planned.steps] == ([agent] if agent else [])
    if text.startswith("do I need"):
        (reason,) = planned.steps[0].route.reasons
        assert reason == (
            "its example 'what will the weather be like in Oslo tomorrow' is near in meaning"
        )


async def test_without_its_embedding_model_the_rules_answer_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planner = RulesPlanner(ExampleIndex(EmbeddingModel(name="unknown:x")))

    unmatched = await planner.plan("do I need an umbrella", Roster(EXAMPLES), WRITER)
    matched = await planner.plan("the forecast", Roster(EXAMPLES), WRITER)

    assert "I am the built-in rules model" in unmatched.question
    assert [step.agent for step in matched.steps] == ["weather"]
    assert [record.message for record in find_logged(caplog)] == [
        "supervisor.embeddings_unavailable"
    ]
