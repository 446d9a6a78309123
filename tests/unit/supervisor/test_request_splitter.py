"""Requests are split into steps, and a step takes over results of earlier steps."""

import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.phrasing import extract_value
from trunkline.supervisor.references import (
    find_needed_steps,
    find_references,
    format_node_id,
    has_reference,
    write_template,
)
from trunkline.supervisor.request_splitter import is_open_question, split_request
from trunkline.supervisor.router import Router
from trunkline.v1 import agent_card_pb2
from trunkline.workflows.expressions import Template


@dataclass(frozen=True)
class Case:
    request: str
    steps: list[tuple[str, str]]


@pytest.mark.parametrize(
    "case",
    [
        Case(
            "what is 15% of 240, and convert 36 USD to EUR",
            [("math", "what is 15% of 240"), ("currency", "convert 36 USD to EUR")],
        ),
        Case(
            "what is 15% of 240 and 36 USD in EUR",
            [("math", "what is 15% of 240"), ("currency", "36 USD in EUR")],
        ),
        Case(
            "What is 2+2? Convert 5 USD to EUR.",
            [("math", "What is 2+2?"), ("currency", "Convert 5 USD to EUR.")],
        ),
        Case(
            "calculate 1+2; convert 3 USD to EUR\nsolve x=3",
            [
                ("math", "calculate 1+2"),
                ("currency", "convert 3 USD to EUR"),
                ("math", "solve x=3"),
            ],
        ),
        Case(
            "if I get 20% off a 60 dollar coat, what do I pay",
            [("math", "if I get 20% off a 60 dollar coat, what do I pay")],
        ),
        Case(
            "what is the average of 10 and half of 30",
            [("math", "what is the average of 10 and half of 30")],
        ),
        Case(
            "how many days between March 3 and May 17 2026",
            [("math", "how many days between March 3 and May 17 2026")],
        ),
        Case(
            "how long must a password be, and are dogs allowed?",
            [("", "how long must a password be"), ("", "are dogs allowed?")],
        ),
        Case(
            "I have two questions: how long must a password be, and are dogs allowed?",
            [("", "how long must a password be"), ("", "are dogs allowed?")],
        ),
        Case(
            "what's 3 cubed, and is it odd?",
            [("math", "what's 3 cubed"), ("math", "is it odd?")],
        ),
        Case(
            "could you tell me how many days off I get for moving house, and what 28 minus 9 is?",
            [
                ("", "could you tell me how many days off I get for moving house"),
                ("math", "what 28 minus 9 is?"),
            ],
        ),
        Case(
            "please add 49.90, 12.50 and 8.75 and then tell me by when I have to hand it in",
            [
                ("math", "please add 49.90, 12.50 and 8.75"),
                ("", "tell me by when I have to hand it in"),
            ],
        ),
        Case(
            "subtract 15 from 100 and after that tell me how long the journey takes",
            [("math", "subtract 15 from 100"), ("", "tell me how long the journey takes")],
        ),
        Case(
            "add 12.50 and 7.80 first and then convert 10 inches to centimetres",
            [("math", "add 12.50 and 7.80"), ("math", "convert 10 inches to centimetres")],
        ),
        Case(
            "sort 3, 9 and 5 largest first and then convert 10 inches to centimetres",
            [
                ("math", "sort 3, 9 and 5 largest first"),
                ("math", "convert 10 inches to centimetres"),
            ],
        ),
        Case(
            "I am sorry to bother you again, but how quickly must I report it, and what is 2+2?",
            [
                ("", "I am sorry to bother you again, but how quickly must I report it"),
                ("math", "what is 2+2?"),
            ],
        ),
        Case(
            "Is 51 prime? If not, what are its factors?",
            [("math", "Is 51 prime? If not, what are its factors?")],
        ),
        Case(
            "dinner came to 132 for 6 of us, what does everyone owe",
            [("math", "dinner came to 132 for 6 of us, what does everyone owe")],
        ),
        Case(
            "may I bring my dog, and what is 45 plus 55?",
            [("", "may I bring my dog"), ("math", "what is 45 plus 55?")],
        ),
        Case(
            "would you tell me the extension of the help desk and convert 5 feet to centimetres?",
            [
                ("", "would you tell me the extension of the help desk"),
                ("math", "convert 5 feet to centimetres?"),
            ],
        ),
        Case(
            "subtract 15 from 40 and double it",
            [("math", "subtract 15 from 40"), ("math", "double it")],
        ),
        Case(
            "what is 24 times 7, and can I smoke inside?",
            [("math", "what is 24 times 7"), ("", "can I smoke inside?")],
        ),
        Case("what is 1+2 and 3+4", [("math", "what is 1+2"), ("math", "3+4")]),
        Case("sqrt(2) and sqrt(3)", [("math", "sqrt(2)"), ("math", "sqrt(3)")]),
        Case("factorial(5) and 2+2", [("math", "factorial(5)"), ("math", "2+2")]),
        Case("count 3 and count 5", [("echo", "count 3"), ("echo", "count 5")]),
        Case("echo hello, and what is 1+2", [("echo", "echo hello"), ("math", "what is 1+2")]),
        Case(
            "@math 15% of 240, then @currency 36 USD to EUR",
            [("math", "15% of 240"), ("currency", "36 USD to EUR")],
        ),
        Case(
            "what is 1+2 and @echo fail boom",
            [("math", "what is 1+2"), ("echo", "fail boom")],
        ),
        Case(
            "what is the capital of France and what is 1+2",
            [("", "what is the capital of France"), ("math", "what is 1+2")],
        ),
        Case(
            "what is 1+2, and what time is it in Tokyo",
            [("math", "what is 1+2"), ("", "what time is it in Tokyo")],
        ),
        Case(
            "Tell me the average of 12, 15 and 24, and also how many seconds there are in a day",
            [
                ("math", "Tell me the average of 12, 15 and 24"),
                ("math", "how many seconds there are in a day"),
            ],
        ),
        Case(
            "what is 2+2, and up to how much may a manager approve",
            [("math", "what is 2+2"), ("", "up to how much may a manager approve")],
        ),
        Case(
            "who bakes the bread and within how many hours may customers return it",
            [
                ("", "who bakes the bread"),
                ("", "within how many hours may customers return it"),
            ],
        ),
        Case(
            "What is the minimum length of a password, according to our documents?",
            [
                (
                    "research",
                    "What is the minimum length of a password, according to our documents?",
                )
            ],
        ),
        Case(
            "who approves travel, as per the handbook, and what is 2+2?",
            [("research", "who approves travel, as per the handbook"), ("math", "what is 2+2?")],
        ),
        Case(
            "what is 2+2, and according to the handbook, how many days of leave are there?",
            [
                ("math", "what is 2+2"),
                ("research", "according to the handbook, how many days of leave are there?"),
            ],
        ),
        Case(
            "what is 2+2, according to the handbook, how many days of leave are there?",
            [
                ("math", "what is 2+2"),
                ("research", "according to the handbook, how many days of leave are there?"),
            ],
        ),
    ],
    ids=lambda case: case.request,
)
def test_a_request_is_split_if_each_side_has_an_agent_or_is_a_question(
    router: Router, case: Case
) -> None:
    steps = split_request(case.request, router)

    assert [(step.agent, step.text) for step in steps] == case.steps
    assert [step.id for step in steps] == [f"step-{n}" for n in range(1, len(steps) + 1)]


@pytest.mark.parametrize(
    "request_",
    [
        "what is 1+2",
        "solve x^2-5x+6=0",
        "solve x+y=3, x-y=1",
        "integrate x and y",
        "integrate x^2 and x^3",
        "integrate sin(x)^2 and cos(x)^2",
        "what is the sum of 3 and 4",
        "convert 1,000 USD to EUR",
        "are 3/6 and 1/2 the same?",
        "a 1200 euro phone, reduced by a third",
        "what is 5, plus 3",
        "when you have a minute, please tell me how much 30 pounds would be in dollars",
        "100 USD in EUR and GBP",
        "3 nights at 89 euros each, how much is it in total?",
        "I drive 180 km at 60 km/h, how long does it take",
        "a shirt costs 20 dollars and a tie 15 dollars, what's the total",
        "3 coffees at 2.80 and 2 cakes at 3.50",
        "3200 euros, how much is 4.5% more",
        "split 187 between 6 people, 10% tip first",
        "8 of 32 students failed, what percentage is that",
        "sort 5, 2, 9 and 1",
        "what do 3, 4 and 5 come to altogether",
        "My train leaves at 8:40 and takes 2 hours 35 minutes. When do I arrive?",
        "what time is it two hours and 10 minutes after 10:45",
        "is 12 divisible by 5? what about 15?",
        "how many hours and minutes is 200 minutes",
        "I have £35. What is that in Canadian dollars?",
        "The room costs 1,200 crowns a night. What's that in euros?",
        "100 USD in EUR, GBP and JPY",
        "echo salt and pepper",
        "hello, what is 1+2",
        "wait, what is 1+2",
        "please be so kind, and calculate 1+2",
        "the R&D and, then",
        "@echo say this and what is 1+2, and convert 5 USD to EUR",
        "",
        " , and ; ",
        ")% and )%",
    ],
)
def test_a_request_is_not_split_if_a_side_would_lose_its_meaning(
    router: Router, request_: str
) -> None:
    assert len(split_request(request_, router)) == 1


def test_a_step_that_refers_to_the_result_waits_for_it(router: Router) -> None:
    first, second = split_request("what is 12*3, then convert that USD to EUR", router)

    assert (first.after, first.needed_steps) == ((), ())
    assert (second.after, second.needed_steps) == (("step-1",), ("step-1",))


def test_a_step_after_then_waits_without_needing_the_result(router: Router) -> None:
    _, second = split_request("count 3 then count 2", router)

    assert (second.after, second.needed_steps) == (("step-1",), ())


def test_independent_steps_do_not_wait(router: Router) -> None:
    steps = split_request("what is 15% of 240, and convert 36 USD to EUR", router)

    assert [step.after for step in steps] == [(), ()]


def test_an_unknown_address_is_a_step_without_an_agent(router: Router) -> None:
    (step,) = split_request("@weather what is 1+2", router)

    assert step.agent == ""
    assert list(step.route.reasons) == ["no agent here is named weather"]


def test_an_agent_on_the_path_cannot_be_addressed() -> None:
    card = agent_card_pb2.AgentCard(name="boss")

    (step,) = split_request("@boss hello", Router([card]).exclude(("boss",)))

    assert step.agent == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("convert that to EUR", True),
        ("convert that USD to EUR", True),
        ("multiply it by 4", True),
        ("multiply the result by 4", True),
        ("add 3 to the previous answer", True),
        ("what is the square root of that?", True),
        ("how much is that in EUR", True),
        ("how much is it in EUR", True),
        ("what time is it in Tokyo", False),
        ("is it true that 1+1=2", False),
        ("what is the number that divides 12", False),
        ("solve it-shop=3", False),
        ("what is 1+2", False),
    ],
)
def test_a_reference_is_distinguished_from_an_ordinary_word(text: str, *, expected: bool) -> None:
    assert has_reference(text) is expected


def fill_references(text: str, answers: dict[str, str]) -> str:
    template = Template.parse(write_template(text, find_references(text, tuple(answers))))
    nodes = {format_node_id(step): {"text": answer.strip()} for step, answer in answers.items()}
    return str(template.render({"nodes": nodes}))


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("36", "36"),
        ("-1.5", "-1.5"),
        ("1,234.5", "1234.5"),
        ("100 USD = 92.34 EUR (ECB rate of 2026-10-30)", "92.34"),
        ("1/3 ≈ 0.333333", "(1/3)"),
        ("250 grams ≈ 8.81849 ounces", "8.81849"),
        ("x = 2", "2"),
        ("x = 2 or x = 3", "x = 2 or x = 3"),
        ("3*x^2", "3*x^2"),
        ("12 apples", "12 apples"),
    ],
)
def test_the_value_of_an_answer_is_taken_over(answer: str, value: str) -> None:
    assert extract_value(answer) == value
    assert fill_references("convert that to EUR", {"step-1": answer}) == f"convert {value} to EUR"


def test_only_the_first_reference_is_replaced_and_backslashes_stay() -> None:
    answers = {"step-1": r"\1"}

    assert fill_references("add the result to the result", answers) == r"add \1 to the result"


def test_results_of_several_steps_replace_their_numbers() -> None:
    after = ("step-1", "step-2")
    text = "subtract {1} from {2}, not {3}"

    assert find_needed_steps(text, after) == after
    answers = {"step-1": "100 USD = 92.34 EUR (today)", "step-2": "7"}
    assert fill_references(text, answers) == "subtract 92.34 from 7, not {3}"


def test_a_number_alone_on_its_line_is_replaced_by_the_whole_answer() -> None:
    answers = {"step-1": "100 USD = 92.34 EUR (today)\n", "step-2": "see {1}"}

    filled = fill_references("Sum this up:\n{1}\n{2}", answers)

    assert filled == "Sum this up:\n100 USD = 92.34 EUR (today)\nsee {1}"


def test_a_number_of_a_step_that_is_no_dependency_is_text() -> None:
    assert find_needed_steps("the set {1}", ()) == ()
    assert find_needed_steps("the set {2}", ("step-1",)) == ()
    assert find_needed_steps("the set {2} and that", ("step-1",)) == ("step-1",)


@pytest.mark.parametrize(
    "text",
    [
        "1+" * 500_000 + "1",
        "a, " * 300_000,
        " " * 1_000_000,
        "x" + " " * 1_000_000 + "y",
        "@math " * 100_000,
        "@math " + " and " * 200_000,
        "and " * 1_200,
        "((((" * 1_000,
        "that " * 800,
        ", 1+1" * 800,
        "aaaaaaaaaa" * 400 + "(",
    ],
    ids=lambda text: f"{text[:12]!r} of {len(text)}",
)
def test_a_hostile_request_is_planned_quickly(router: Router, text: str) -> None:
    started_s = time.process_time()

    steps = split_request(text, router)

    assert steps
    # The split takes some hundredths of a second; a superlinear algorithm takes minutes.
    assert time.process_time() - started_s < 5


@given(text=st.text(max_size=300))
def test_any_text_has_a_plan_whose_steps_are_pieces_of_it_in_order(text: str) -> None:
    cards = [agent_card_pb2.AgentCard(name=name) for name in ("math", "echo")]
    cards[0].skills.add(id="sums", tags=["+", "sum", "a"])
    cards[1].skills.add(id="echo", tags=["echo", "command"])

    steps = split_request(text, Router(cards))

    position = 0
    for step in steps:
        position = text.index(step.text, position) + len(step.text)
    assert steps


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("within how many hours may customers return a loaf", True),
        ("by when must a claim be filed", True),
        ("for how long may I store files", True),
        ("up to how much can a manager approve", True),
        ("to whom do I report it", True),
        ("I bought a loaf, within how many hours may I return it", True),
        ("tell me after how many years it rises", True),
        ("within a week", False),
        ("up to now", False),
        ("for how", False),
        ("by the way, in winter", False),
    ],
)
def test_a_question_word_behind_a_preposition_opens_a_question(text: str, *, is_open: bool) -> None:
    assert is_open_question(text) is is_open


def test_the_name_of_a_thing_behind_tell_me_is_an_open_question() -> None:
    assert is_open_question("would you mind telling me the opening hours of the office")
    assert not is_open_question("the opening hours of the office")
    assert not is_open_question("tell me a joke")
