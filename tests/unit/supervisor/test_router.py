"""Tests of routing: the agent of a question, the confidence and the reasons."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.mesh.bundled_cards import shipped_cards
from trunkline.supervisor.answer import no_agent_question, render_introduction
from trunkline.supervisor.request_splitter import split_request
from trunkline.supervisor.router import GOOD_CONFIDENCE, Router, top_agents
from trunkline.supervisor.tags import SearchableText, Tag
from trunkline.v1 import agent_card_pb2

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/routing.json").read_text(encoding="utf-8")
)


def card(name: str, *tags: str, skill: str = "") -> agent_card_pb2.AgentCard:
    agent_skill = agent_card_pb2.AgentSkill(id=skill or f"{name}ing", name=skill, tags=tags)
    return agent_card_pb2.AgentCard(name=name, description=f"Does {name}.", skills=[agent_skill])


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: repr(case["question"]))
def test_a_request_goes_to_the_agent_of_its_words_and_signs(
    router: Router, case: dict[str, Any]
) -> None:
    text = case["question"] * case.get("times", 1) + case.get("then", "")

    steps = split_request(text, router)

    agents = [step.agent for step in steps]
    assert (agents if any(agents) else []) == case["to"]
    for step in steps:
        assert (step.route.confidence >= GOOD_CONFIDENCE) is bool(step.agent)
        assert step.route.reasons


def test_the_table_has_enough_of_every_kind() -> None:
    questions = [case["question"] for case in VECTORS["cases"]]
    kinds = Counter(case["kind"] for case in VECTORS["cases"])
    reached = {agent for case in VECTORS["cases"] for agent in case["to"]}

    assert len(set(questions)) >= 100
    assert min(kinds["good"], kinds["ambiguous"], kinds["hostile"]) >= 30
    assert reached - {""} == {card.name for card in shipped_cards()}


def test_a_tag_counts_one_and_its_skill_one_and_a_half() -> None:
    scores = Router([card("a", "red", "green"), card("b", "blue")]).route("red green").decision

    assert [(score.agent, score.score) for score in scores.scores] == [("a", 3.5), ("b", 0.0)]
    assert list(scores.reasons) == ["skill 'aing': red, green"]


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("write and review a note: it takes 3 * 4 = 12 or 3 + 4 seconds", "review"),
        ("please write and review a note: it takes 3 * 4 = ? seconds", "review"),
        ("add the numbers: 3 * 4", "math"),
        # Words count behind a colon, too, and signs before it.
        ("add these: 3 dollars in euros", "currency"),
        ("write and review 3 * 4: it is 12", ""),
        ("a note to write and review: 3 * 4", ""),
        ("my note: 3 * 4", "math"),
    ],
)
def test_arithmetic_in_a_text_behind_a_colon_is_that_of_who_is_asked_before_it(
    text: str, agent: str
) -> None:
    math = card("math", "add", "*", "+")
    cards = [math, card("review", "write and review"), card("currency", "dollars", "in euros")]
    assert Router(cards).route(text).agent == agent


def test_a_skill_is_also_matched_by_its_name() -> None:
    router = Router([card("a", "x", skill="Currency conversion")])

    decision = router.route("I need a currency conversion").decision

    assert decision.agent == "a"
    assert decision.scores[0].score == 1.5


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("Pancakes for 4", "dinner"),
        ("pancakes  for 12?", "dinner"),
        ("pancakes for four", "dinner"),
        ("could you please tell me pancakes for 4", "dinner"),
        ("pancakes for", ""),
        ("4 + 5", "other"),
        ("4 - 5", ""),
        # Two agents have this one.
        ("soup of the day", ""),
        # Words and signs that are tags go before examples.
        ("red for 4", "a"),
    ],
)
def test_a_request_that_is_an_example_goes_to_its_agent(text: str, agent: str) -> None:
    dinner, other = card("dinner", "dinner"), card("other", "other")
    dinner.skills[0].examples.extend(["pancakes for 4", "soup of the day", "red for 3"])
    other.skills[0].examples.extend(["Soup of the day", "1 + 2"])

    assert Router([card("a", "red"), dinner, other]).route(text).agent == agent


def test_a_tag_of_two_skills_counts_once() -> None:
    two_skills = agent_card_pb2.AgentCard(name="a")
    two_skills.skills.add(id="one", tags=["red"])
    two_skills.skills.add(id="two", tags=["Red"])

    assert Router([two_skills]).route("red").decision.scores[0].score == 1.0 + 2 * 1.5


def test_confidence_grows_with_matches_and_shrinks_with_a_rival() -> None:
    alone = Router([card("a", "red", "green")])
    contested = Router([card("a", "red", "green"), card("b", "red")])

    red_confidence = alone.route("red").decision.confidence
    red_green_confidence = alone.route("red green").decision.confidence
    contested_confidence = contested.route("red green").decision.confidence

    assert 0 < contested_confidence < red_confidence < red_green_confidence < 1


def test_agents_with_equal_scores_are_named_and_none_is_chosen() -> None:
    router = Router([card("a", "red"), card("b", "red"), card("c", "blue")])

    decision = router.route("red").decision

    assert decision.agent == ""
    assert top_agents(decision) == ["a", "b"]
    assert list(decision.reasons) == ["a and b fit equally well"]


def test_an_unmatched_request_goes_to_the_default_agent_with_the_reason() -> None:
    router = Router([card("a", "red"), card("b", "blue")], default="b")

    (step,) = split_request("hello there", router)
    assert step.agent == ""
    router.apply_default(step.route)

    assert step.agent == "b"
    assert step.route.reasons[-1] == "this is the default agent"
    assert step.route.confidence < GOOD_CONFIDENCE


def test_numbers_in_words_count_as_digits_do() -> None:
    router = Router([card("money", "euros"), card("sums", "# percent", "up by #")])

    assert router.route("950 euros go up by four percent").agent == "sums"
    assert router.route("950 euros in four words").agent == "money"


def test_a_router_without_some_agents_never_chooses_them() -> None:
    router = Router([card("a", "red"), card("b", "red")], default="a").exclude(("a",))

    assert router.route("red").agent == "b"
    (step,) = split_request("hello", router)
    router.apply_default(step.route)
    assert step.agent == ""


def test_a_command_counts_at_the_beginning_only() -> None:
    router = Router([card("echo", "wait", "command"), card("math", "sum", "of")])

    assert router.route("wait for the sum of it").agent == "echo"
    assert router.route("wait for the sum of it").is_explicit
    assert router.route("the sum of a wait").agent == "math"
    assert router.route("a long wait").agent == ""


def test_equal_scores_are_listed_by_name_so_that_routing_is_deterministic() -> None:
    cards = [card(name, "red") for name in "cab"]

    agents = [score.agent for score in Router(cards).route("red").decision.scores]

    assert agents == ["a", "b", "c"]


@dataclass(frozen=True)
class TagCase:
    text: str
    tag: str
    matches: bool


@pytest.mark.parametrize(
    "case",
    [
        TagCase("100 USD", "usd", matches=True),
        TagCase("100usd", "USD", matches=True),
        TagCase("usda beef", "USD", matches=False),
        TagCase("the EXCHANGE  rate", "exchange rate", matches=True),
        TagCase("rate of exchange", "exchange rate", matches=False),
        TagCase("log10(5)", "log", matches=True),
        TagCase("1 + 2", "+", matches=True),
        TagCase("x + 2", "+", matches=True),
        TagCase("2*sqrt(3)", "*", matches=True),
        TagCase("C+ grade", "+", matches=False),
        TagCase("a 5-star hotel", "-", matches=False),
        TagCase("covid-19", "-", matches=False),
        TagCase("5-3", "-", matches=True),
        TagCase("5-x", "-", matches=True),
        TagCase("2020-03-02", "-", matches=False),
        TagCase("and/or", "/", matches=False),
        TagCase("3/4", "/", matches=True),
        TagCase("50%", "%", matches=True),
        TagCase("100 % sure", "%", matches=True),
        TagCase("% of people", "%", matches=False),
        TagCase("$5", "$", matches=True),
        TagCase("5 €", "€", matches=True),
        TagCase("the $ sign", "$", matches=False),
        TagCase("2**3", "**", matches=True),
        TagCase("**bold**", "**", matches=False),
        TagCase("6=0", "=", matches=True),
        TagCase("a=b", "=", matches=False),
    ],
    ids=lambda case: f"{case.tag!r} in {case.text!r}",
)
def test_a_tag_is_found_as_a_whole_word_or_as_a_sign_beside_a_number(case: TagCase) -> None:
    assert Tag.parse(case.tag).is_in(SearchableText.from_text(case.text)) is case.matches


def test_the_question_back_lists_examples(router: Router) -> None:
    text = no_agent_question(split_request("who wrote Hamlet", router), router)

    assert text.startswith("No agent here can answer this.")
    assert '- math: "what is 1+2"' in text
    assert '- currency: "100 USD in EUR"' in text


def test_an_introduction_has_examples_and_the_names_of_agents_without_one() -> None:
    counts = card("count", "number")
    counts.skills[0].examples.append("count to 3")
    start = "I pass your questions to the agents that fit."
    by_name = "Begin with one of these to ask it by its name: @draw, @weigh."

    text = render_introduction(Router([card("weigh", "kg"), counts, card("draw", "line")]))
    assert text == f'{start} {by_name}\nThese would work:\n- count: "count to 3"'
    text = render_introduction(Router([card("weigh", "kg"), card("draw", "line")]))
    assert text == f"{start} {by_name}"
    assert render_introduction(Router([counts])).startswith(f"{start}\nThese would work:\n")


def test_the_question_back_says_that_a_request_was_too_long(router: Router) -> None:
    text = no_agent_question(split_request("(" * 1_000_000, router), router)

    assert text.startswith("This is 1,000,000 characters long")
    assert '- math: "what is 1+2"' in text


def test_the_question_back_says_how_to_choose_between_agents(router: Router) -> None:
    text = no_agent_question(split_request("3 plus 4 dollars", router), router)

    assert text == (
        "Several agents could take this equally well. Begin with one of: @currency, @math."
    )


def test_the_question_back_names_an_unknown_agent(router: Router) -> None:
    text = no_agent_question(split_request("@weather what is 1+2", router), router)

    assert text.startswith("No agent named 'weather' can be asked here.")


def test_the_question_back_mentions_an_empty_mesh() -> None:
    empty = Router([])

    text = no_agent_question(split_request("what is 1+2", empty), empty)

    assert "There is none to route to" in text


def tool(name: str, description: str, *, title: str = "") -> agent_card_pb2.AgentSkill:
    return agent_card_pb2.AgentSkill(
        id=name, name=title or name, description=description, tags=["by description"]
    )


PAINT = agent_card_pb2.AgentCard(
    name="odd",
    skills=[
        tool("mix_paint", "Mixes paint of a colour. Arguments: colour (red, green), litres."),
        # Single words of other agents' tags, and of everyday questions.
        tool("convert", "Converts paint from one kind to another. Arguments: amount."),
        tool("search", "Searches the shop. Arguments: query."),
        tool("time", "Tells the time that paint takes to dry."),
    ],
)


def test_a_tool_s_description_finds_its_agent_without_tags() -> None:
    router = Router([*shipped_cards(), PAINT])

    route = router.route("mix 3 litres of red paint").decision
    both = split_request("mix 3 litres of red paint and what is 2+2", router)

    assert (route.agent, list(route.reasons)) == ("odd", ["skill 'mix_paint': its description"])
    assert [step.agent for step in both] == ["odd", "math"]
    assert not router.route("who painted the Mona Lisa").agent
    # An agent over it inherits the skill.
    front = agent_card_pb2.AgentCard(name="front", skills=[PAINT.skills[0]])
    front.skills[0].id = "odd:mix_paint"
    assert Router([*shipped_cards(), front]).route("mix 2 litres of paint").agent == "front"


CITY = agent_card_pb2.AgentCard(
    name="city",
    skills=[
        tool("moon_phase", "Tells the phase of the moon."),
        tool("translate", "Translates a word. Arguments: word, language (german, french)."),
        tool("parking_fee", "Parking fee of a car park. Arguments: hours, zone."),
        tool("water_level", "Level of the water at a gauge. Arguments: days, gauge."),
        tool("parcel_price", "Price of a parcel. Arguments: weight in kg, destination."),
        tool("findTide", "Find the tide of a harbour. Arguments: harbour, hours."),
    ],
)


@pytest.mark.parametrize(
    ("request_", "agent"),
    [
        ("parking fee for 3 hours in zone middle", "city"),
        ("what is the parking fee for 2.5 hours in zone middle", "city"),
        ("water level of the gauge for 3 days in Bremen", "city"),
        ("parcel price for 3 kg to Berlin", "city"),
        ("find the tide for 5 hours in harbour Bremen", "city"),
        ("how many minutes are in 3 hours of parking", "math"),
        ("3 hours in minutes", "math"),
        ("what is the water price of 3 days in euros", "currency"),
    ],
)
def test_the_whole_name_of_a_tool_weighs_more_than_one_tag(request_: str, agent: str) -> None:
    assert Router([*shipped_cards(), CITY]).route(request_).agent == agent


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        (
            "what is the moon phase and translate 'cat' into german",
            ["what is the moon phase", "translate 'cat' into german"],
        ),
        (
            "parking fee for 3 hours, and translate the word 'cat' into german",
            ["parking fee for 3 hours", "translate the word 'cat' into german"],
        ),
        (
            "translate 'cat' into german and what is the moon phase",
            ["translate 'cat' into german", "what is the moon phase"],
        ),
        (
            "translate 'cat' into german and translate 'dog' into french",
            ["translate 'cat' into german", "translate 'dog' into french"],
        ),
        ("translate 'cat' and 'dog' into german", ["translate 'cat' and 'dog' into german"]),
        (
            "translate 'read and translate' into german",
            ["translate 'read and translate' into german"],
        ),
        ("parking fee for 3 hours and 5 hours", ["parking fee for 3 hours and 5 hours"]),
        ("moon phase and the phase of it", ["moon phase and the phase of it"]),
    ],
)
def test_the_verb_of_a_tool_behind_and_begins_a_step(request_: str, parts: list[str]) -> None:
    steps = split_request(request_, Router([*shipped_cards(), CITY]))

    assert [(step.agent, step.text) for step in steps] == [("city", part) for part in parts]


def test_descriptions_take_no_request_from_the_tags_of_other_agents(router: Router) -> None:
    beside = Router([*shipped_cards(), PAINT, CITY])
    taken = [
        case["question"]
        for case in VECTORS["cases"]
        if any(case["to"]) and "times" not in case
        if [step.agent for step in split_request(case["question"], beside)] != case["to"]
    ]

    assert not taken


def test_the_best_of_two_descriptions_is_clearly_ahead() -> None:
    cards = [
        agent_card_pb2.AgentCard(name=name, skills=[tool("mix_paint", text)])
        for name, text in (("red", "Mixes red paint, by litres."), ("any", "Mixes paint."))
    ]

    assert Router(cards).route("mix 3 litres of red paint").agent == "red"
    alike = Router(cards).route("mix 3 paint").decision
    assert (alike.agent, top_agents(alike)) == ("", ["any", "red"])


@pytest.mark.parametrize(
    ("question", "agent"),
    [
        ("what is the meal allowance in euros", "library"),
        ("what is the meal allowance in euros nowadays", "library"),
        ("up to how much can a manager approve in euros", "library"),
        ("by when must a claim of 900 euros be filed", "library"),
        ("to whom do I report a loss of 900 euros", "library"),
        ("how high is our budget in dollars?", "library"),
        ("what is the euro in dollars", "currency"),
        ("what are the 20 euros in dollars", "currency"),
        ("who approves a claim of 900 euros", "library"),
        ("can I spend 150 euros on a hotel", "library"),
        ("can I have 20 euros in dollars", "currency"),
    ],
)
def test_a_unit_alone_leaves_a_question_to_the_agent_of_open_questions(
    question: str, agent: str
) -> None:
    money = card("currency", "euro", "in euros", "euros", "dollars", "in dollars")
    step = split_request(question, router := Router([money, card("library", "open questions")]))[0]

    router.apply_open_questions(step.route)

    assert step.agent == agent
    # Without such an agent, the other one says what to add.
    assert split_request(question, Router([money]))[0].agent == "currency"


@pytest.mark.parametrize(
    "question",
    [
        "what happens if I get my password wrong five times",
        "what do I do if I forget it three times",
        "how long is it locked after it was wrong five times",
        "is a second chance given if I fail three times a week",
    ],
)
def test_a_number_of_times_alone_is_no_sum(question: str) -> None:
    router = Router([*shipped_cards(), card("library", "open questions")])
    step = split_request(question, router)[0]

    router.apply_open_questions(step.route)

    assert step.agent == "library"
    assert router.route("how much is five times seven").agent == "math"


@pytest.mark.parametrize(
    ("request_text", "agent"),
    [
        ("how many apples do we have in total", "stock"),
        ("are 3 apples and 4 pears 7 in total", "stock"),
        ("what is the total of invoice 1123", "billing"),
        ("how much is invoice 1123 altogether", "billing"),
        ("what does everyone owe on invoice 7", "billing"),
        ("what is the original price of invoice 7", "billing"),
        ("I paid 12, 30 and 8, how much is that in total", "math"),
    ],
)
def test_agents_of_a_mesh_are_asked_before_general_skills(request_text: str, agent: str) -> None:
    own = [card("stock", "apples", "stock"), card("billing", "invoice", "refund")]

    assert Router([*shipped_cards(), *own]).route(request_text).agent == agent


def test_a_general_skill_counts_for_requests_with_a_number() -> None:
    sums = agent_card_pb2.AgentCard(
        name="sums", skills=[agent_card_pb2.AgentSkill(id="sums", tags=["in total", "general"])]
    )
    router = Router([sums, card("stock", "apples")])

    assert router.route("3 and 4 in total").agent == "sums"
    assert not router.route("the price in total").agent
    assert router.route("3 apples in total").agent == "stock"


@pytest.mark.parametrize(
    "request_text", ["order 2 apples and order 3 pears", "start 2 apples and then start 3 pears"]
)
def test_commands_with_amounts_are_no_statements(request_text: str) -> None:
    router = Router([*shipped_cards(), card("fruit", "apples"), card("trees", "pears")])

    assert [step.agent for step in split_request(request_text, router)] == ["fruit", "trees"]


def test_a_ratio_that_describes_a_thing_is_no_arithmetic(router: Router) -> None:
    assert split_request("is there a 24/7 hotline", router)[0].agent == ""
    assert split_request("are you open 24/7?", router)[0].agent == ""
    assert split_request("what is 24/7", router)[0].agent == "math"
    assert split_request("what is a 1/2 of 10", router)[0].agent == "math"


def test_a_topic_without_a_question_is_asked_for() -> None:
    router = Router([card("a", "red")])
    steps = split_request("I have a question about parking", router)

    assert no_agent_question(steps, router).startswith(
        "What about parking? Ask the whole question."
    )
