import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from trunkline.patterns import PatternMatch, compile_pattern
from trunkline.reasoning.models.tool_matching import QUESTION_LIMIT_CHARS, match_tools
from trunkline_agents.currency import patterns as currency
from trunkline_agents.math import (
    calendar_patterns,
    clock_patterns,
    date_patterns,
    everyday_patterns,
    sum_patterns,
    unit_patterns,
)
from trunkline_agents.math import patterns as math

TOOLS = {
    "list_currencies": currency.LIST,
    "get_country_currency": currency.COUNTRY,
    "compare": currency.COMPARE,
    "convert": currency.CONVERT,
    "compare_units": unit_patterns.COMPARE_UNITS,
    "convert_units": unit_patterns.CONVERT_UNITS,
    "count_days": date_patterns.COUNT_DAYS,
    "move_date": date_patterns.MOVE_DATE,
    "check_date": date_patterns.CHECK_DATE,
    "find_weekday": date_patterns.FIND_WEEKDAY,
    "measure_age": calendar_patterns.MEASURE_AGE,
    "find_named_day": calendar_patterns.FIND_NAMED_DAY,
    "count_named_days": calendar_patterns.COUNT_NAMED_DAYS,
    "find_week": calendar_patterns.FIND_WEEK,
    "find_leap_year": calendar_patterns.FIND_LEAP_YEAR,
    "scale_price": everyday_patterns.SCALE_PRICE,
    "travel": everyday_patterns.TRAVEL,
    "sort_numbers": everyday_patterns.SORT_NUMBERS,
    "continue_sequence": everyday_patterns.CONTINUE_SEQUENCE,
    "read_roman": everyday_patterns.READ_ROMAN,
    "factor": math.FACTOR,
    "expand": math.EXPAND,
    "differentiate": math.DIFFERENTIATE,
    "integrate": math.INTEGRATE,
    "find_time": clock_patterns.FIND_TIME,
    "measure_time": clock_patterns.MEASURE_TIME,
    "work_out": sum_patterns.WORK_OUT,
    "add_items": everyday_patterns.ADD_ITEMS,
    "check": math.CHECK,
    "solve": math.SOLVE,
    "calculate": math.CALCULATE,
}
TYPES: dict[str, Callable[[Any], object]] = {"integer": int, "number": float, "string": str}


def argument(rule: str | dict[str, Any], groups: PatternMatch) -> object:
    """Return the value of one argument of a match; None if it is missing."""
    if isinstance(rule, dict):
        result = argument(rule["from"], groups)
        if result is None:
            return rule.get("default")
        mapped = rule.get("map", {}).get(str(result).lower(), result)
        return TYPES[rule.get("type", "string")](mapped)
    try:
        values = {name: groups[name] for name in re.findall(r"\{(\w+)\}", rule)}
    except IndexError:
        return None
    return None if None in values.values() else rule.format_map(values).strip()


def match_declarations(
    declarations: list[dict[str, Any]], question: str
) -> tuple[int, dict[str, Any]] | None:
    """Return the length of the first match and its arguments."""
    for declaration in declarations:
        result = compile_pattern(declaration["pattern"]).search(question.strip())
        contained = declaration.get("contains", "")
        if (
            result is not None
            and compile_pattern(contained).search(question)
            and all(
                compile_pattern(required).search(
                    result[int(name) if name.isdecimal() else name] or ""
                )
                for name, required in declaration.get("require", {}).items()
            )
            and not any(
                compile_pattern(excluded).search(
                    result[int(name) if name.isdecimal() else name] or ""
                )
                for name, excluded in declaration.get("exclude", {}).items()
            )
        ):
            values_by_name = {
                name: argument(rule, result) for name, rule in declaration["arguments"].items()
            }
            arguments = {name: value for name, value in values_by_name.items() if value is not None}
            return result.end() - result.start(), arguments
    return None


def choose_tools(question: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the tools with the longest match: one, if the declarations are unambiguous."""
    result = {
        tool: match_declarations(declarations, question) for tool, declarations in TOOLS.items()
    }
    lengths = [match[0] for match in result.values() if match]
    return [
        (tool, match[1]) for tool, match in result.items() if match and match[0] == max(lengths)
    ]


@dataclass(frozen=True)
class Case:
    question: str
    tool: str
    arguments: dict[str, Any]


ONE = {"amount": "1"}
CASES = [
    Case("what is 1+2", "calculate", {"expression": "1+2"}),
    Case("What's 1+2?", "calculate", {"expression": "1+2"}),
    Case("1+2", "calculate", {"expression": "1+2"}),
    Case("1+2=", "calculate", {"expression": "1+2"}),
    Case("(2+3)*4", "calculate", {"expression": "(2+3)*4"}),
    Case("what is (2+3)*4?", "calculate", {"expression": "(2+3)*4"}),
    Case("what is 15% of 240", "calculate", {"expression": "15% of 240"}),
    Case("multiply 5 by 4", "calculate", {"expression": "(5 )*(4)"}),
    Case("subtract 2.5 from 10", "calculate", {"expression": "(10)-(2.5 )"}),
    Case("sqrt(2) to 10 digits", "calculate", {"expression": "sqrt(2)", "digits": 10}),
    Case("what is pi^2 to 5 digits?", "calculate", {"expression": "pi^2", "digits": 5}),
    Case("calculate 5 plus 3", "calculate", {"expression": "5 plus 3"}),
    Case("what is the square root of 2", "calculate", {"expression": "square root of 2"}),
    Case("100!", "calculate", {"expression": "100!"}),
    Case("log10(1000)", "calculate", {"expression": "log10(1000)"}),
    Case("9**9**9**9", "calculate", {"expression": "9**9**9**9"}),
    Case("what is factorial(10**9)", "calculate", {"expression": "factorial(10**9)"}),
    Case(
        "calculate __import__('os').system('id')",
        "calculate",
        {"expression": "__import__('os').system('id')"},
    ),
    Case("what is ().__class__", "calculate", {"expression": "().__class__"}),
    Case("solve x^2-5x+6=0", "solve", {"equation": "x^2-5x+6=0"}),
    Case("x^2-5x+6=0", "solve", {"equation": "x^2-5x+6=0"}),
    Case("solve a*x=b for a", "solve", {"equation": "a*x=b", "variable": "a"}),
    Case("find the roots of x^2-4", "solve", {"equation": "x^2-4"}),
    Case("derivative of x^3", "differentiate", {"expression": "x^3", "order": 1}),
    Case(
        "what is the second derivative of x^3?", "differentiate", {"expression": "x^3", "order": 2}
    ),
    Case(
        "differentiate x*y with respect to y",
        "differentiate",
        {"expression": "x*y", "variable": "y"},
    ),
    Case("d/dx sin(x)", "differentiate", {"expression": "sin(x)", "variable": "x"}),
    Case("integrate x*sin(x)", "integrate", {"expression": "x*sin(x)"}),
    Case("integrate x*y dy", "integrate", {"expression": "x*y", "variable": "y"}),
    Case(
        "what is the integral of x*sin(x) from 0 to pi",
        "integrate",
        {"expression": "x*sin(x)", "lower": "0", "upper": "pi"},
    ),
    Case(
        "integrate x^2 dx from 0 to 1",
        "integrate",
        {"expression": "x^2", "variable": "x", "lower": "0", "upper": "1"},
    ),
    Case(
        "100 USD in EUR",
        "convert",
        {"amount": "100", "from_currency": "USD", "to_currency": "EUR"},
    ),
    Case(
        "100 USD to EUR on 2020-03-02",
        "convert",
        {"amount": "100", "from_currency": "USD", "to_currency": "EUR", "date": "2020-03-02"},
    ),
    Case(
        "convert 36 USD to EUR",
        "convert",
        {"amount": "36", "from_currency": "USD", "to_currency": "EUR"},
    ),
    Case(
        "how much is 5 GBP in JPY?",
        "convert",
        {"amount": "5", "from_currency": "GBP", "to_currency": "JPY"},
    ),
    Case(
        "what is 100 XYZ in EUR",
        "convert",
        {"amount": "100", "from_currency": "XYZ", "to_currency": "EUR"},
    ),
    Case(
        "$1,250.50 in swiss francs",
        "convert",
        {"amount": "1,250.50", "from_currency": "$", "to_currency": "swiss francs"},
    ),
    Case(
        "how many yen is 5 euros",
        "convert",
        {"amount": "5", "from_currency": "euros", "to_currency": "yen"},
    ),
    Case("USD to EUR", "convert", {"amount": "1", "from_currency": "USD", "to_currency": "EUR"}),
    Case("which currencies do you know?", "list_currencies", {}),
    Case("yen per dollar", "convert", {**ONE, "from_currency": "dollar", "to_currency": "yen"}),
    Case(
        "how many yen to the pound",
        "convert",
        {**ONE, "from_currency": "pound", "to_currency": "yen"},
    ),
    Case(
        "what rate does the Polish zloty have against the euro",
        "convert",
        {**ONE, "from_currency": "Polish zloty", "to_currency": "euro"},
    ),
    Case(
        "which exchange rate has EUR to USD",
        "convert",
        {**ONE, "from_currency": "EUR", "to_currency": "USD"},
    ),
    Case(
        "at what rate does the Swiss franc trade against the dollar?",
        "convert",
        {**ONE, "from_currency": "Swiss franc", "to_currency": "dollar"},
    ),
    Case(
        "what is the rate that the yen has to the pound",
        "convert",
        {**ONE, "from_currency": "yen", "to_currency": "pound"},
    ),
    Case(
        "what is the Danish krone's rate against the euro",
        "convert",
        {**ONE, "from_currency": "Danish krone", "to_currency": "euro"},
    ),
    Case(
        "what rate does the zloty have",
        "convert",
        {**ONE, "from_currency": "zloty", "to_currency": "EUR"},
    ),
    Case("multiply (a - 1) by (a + 1)", "expand", {"expression": "((a - 1))*((a + 1))"}),
    Case(
        "can 54 be split evenly into 9?",
        "check",
        {"number": "54", "other": "9", "relation": "divisible by"},
    ),
    Case(
        "what's the dollar at today?",
        "convert",
        {**ONE, "from_currency": "dollar", "to_currency": "EUR"},
    ),
    Case("the pound rate", "convert", {**ONE, "from_currency": "pound", "to_currency": "EUR"}),
    Case(
        "how is the euro doing",
        "convert",
        {**ONE, "from_currency": "euro", "to_currency": "USD"},
    ),
    Case(
        "what is the exchange rate for Swiss francs?",
        "convert",
        {**ONE, "from_currency": "Swiss francs", "to_currency": "EUR"},
    ),
    Case(
        "2 1/2 hours in minutes",
        "convert_units",
        {"amount": "2 1/2", "from_unit": "hours", "to_unit": "minutes"},
    ),
    Case("is -4 an integer?", "check", {"number": "-4", "relation": "integer"}),
    Case("is 3/4 a whole number", "check", {"number": "3/4", "relation": "integer"}),
    Case("what fraction is 0.2?", "calculate", {"expression": "0.2", "form": "fraction"}),
    Case("which fraction equals 0.2", "calculate", {"expression": "0.2", "form": "fraction"}),
    Case("write x^2 + 6x + 9 as a product", "factor", {"expression": "x^2 + 6x + 9"}),
    Case("what is x^2 - 1 in factored form?", "factor", {"expression": "x^2 - 1"}),
    Case("the factored form of x^2 - 1", "factor", {"expression": "x^2 - 1"}),
    Case("write (a + b)^2 without brackets", "expand", {"expression": "(a + b)^2"}),
    Case("what is 3(x - 2) without the parentheses?", "expand", {"expression": "3(x - 2)"}),
    Case("break 360 down into prime factors", "factor", {"expression": "360"}),
    Case("split up 84 into its primes", "factor", {"expression": "84"}),
    Case("finding 4% of 2500", "calculate", {"expression": "4% of 2500"}),
    Case("write 7/4 as a mixed number", "calculate", {"expression": "7/4", "form": "mixed number"}),
    Case(
        "what is 1 3/4 as an improper fraction",
        "calculate",
        {"expression": "1 3/4", "form": "fraction"},
    ),
    Case("remove the brackets in 3(x - 2)", "expand", {"expression": "3(x - 2)"}),
    Case("what's the expanded form of (x+1)^2", "expand", {"expression": "(x+1)^2"}),
    Case("is 15 a triangular number?", "check", {"number": "15", "relation": "triangular"}),
    Case("is 12321 a palindrome", "check", {"number": "12321", "relation": "palindrome"}),
    Case("is 21 in the Fibonacci sequence", "check", {"number": "21", "relation": "fibonacci"}),
    Case(
        "is 1024 a power of 2?",
        "check",
        {"number": "1024", "other": "2", "relation": "power of"},
    ),
    Case("is -3 a negative number", "check", {"number": "-3", "other": "0", "relation": "<"}),
    Case(
        "does 97 have any factors other than 1 and itself?",
        "check",
        {"number": "97", "relation": "composite"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.question)
def test_a_question_is_matched_to_one_tool_with_arguments(case: Case) -> None:
    assert choose_tools(case.question) == [(case.tool, case.arguments)]


@pytest.mark.parametrize(
    "question",
    [
        "hello there",
        "what is the capital of France",
        "who wrote Hamlet",
        "what time is it in Tokyo",
        "how to run",
        "what is a",
        "cat in hat",
        "solve world hunger",
        "integrate with our systems",
        "calculate the odds",
        "",
    ],
)
def test_an_unrelated_question_matches_nothing(question: str) -> None:
    assert choose_tools(question) == []


@pytest.mark.parametrize(
    ("question", "expression"),
    [
        ("20 percent off a 60 dollar jacket, what do I pay", "(60 dollar)*(1-(20)%)"),
        ("how much would I save on an 80 dollar bag at 25% off", "(25)%*(80 dollar)"),
        ("split 90 between 4 people", "(90)/(4)"),
        ("how many 25s are in 400?", "(400)/(25)"),
        ("30 is 20 percent of what number", "(30)/((20)%)"),
        ("a class of 28 pupils and 3/4 of them passed", "(3/4)*(28)"),
        ("area of a circle with radius 5 cm", "pi*(5)^2"),
        ("perimeter of a rectangle 8 by 5", "2*((8)+(5))"),
        ("3 nights at 89 euros each, how much is that", "(3)*(89 euros)"),
        ("we pay 1,850 a month, how much is it per year", "(1,850)*12"),
        ("an invoice of 119 includes 19% VAT, how much is it without", "(119)/(1+(19)%)"),
        ("divide 5 by 7 and round to two decimals", "round((5 )/(7 ),2)"),
        ("add up 1,850 and 420 and 96.50", "sum of 1,850 and 420 and 96.50"),
        ("what would a salary of 3000 be after a 5% raise", "(3000)*(1+(5)%)"),
        ("800 euros with a 10 percent surcharge", "(800 euros)*(1+(10)%)"),
        ("out of 40 pupils 10 are ill, what percentage is that?", "(10)/(40)*100"),
        ("10 of the 40 pupils are ill. What percent is that?", "(10)/(40)*100"),
        ("collect like terms: 4a + 3b - 2a", "4a + 3b - 2a"),
        ("combine like terms in 4a + 3b - 2a", "4a + 3b - 2a"),
        ("what percentage is 3/8", "(3/8)*100"),
        ("how many percent more is 60 than 48", "((60)-(48))/(48)*100"),
        ("if I raise 1200 by 4 percent what do I get", "(1200)*(1+(4)%)"),
        ("if you take 15% off 80, how much is left?", "(80)*(1-(15)%)"),
        (
            "the price was 80 and now it is 60, how many percent less is that?",
            "((80)-(60))/(80)*100",
        ),
        (
            "it cost 40 euros, now 50 euros. By what percent did it rise",
            "((50 euros)-(40 euros))/(40 euros)*100",
        ),
        (
            "a jacket costs 80 euros, it is reduced by 35 percent, what's the new price",
            "(80 euros)*(1-(35)%)",
        ),
        ("the rent was 900 euros and was raised by 4%", "(900 euros)*(1+(4)%)"),
        ("how would I take 15% off 80?", "(80)*(1-(15)%)"),
        ("by how many percent is 52 more than 40", "((52)-(40))/(40)*100"),
        ("what percent is 48 smaller than 60", "((60)-(48))/(60)*100"),
        ("what percent less is 48 than 60", "((60)-(48))/(60)*100"),
        ("a 1200 euro phone, reduced by a third", "(1200 euro)*(1-1/3)"),
        ("200 euros increased by a quarter", "(200 euros)*(1+1/4)"),
        ("12 is (1/4) of what number", "(12)/(1/4)"),
        ("two thirds of what number is 40", "(40)/(2/3)"),
        ("logarithm of 1000 to base 10", "log base 10 of (1000)"),
        ("base 2 log of 64", "log base 2 of (64)"),
        ("reduce 42/56 to lowest terms", "(42/56)"),
        ("what is 42/56 in its simplest form", "(42/56)"),
        ("reduce 42/56", "(42/56)"),
        (
            "My rent of 950 euros goes up by 4 percent. What is the new rent?",
            "(950 euros)*(1+(4)%)",
        ),
        ("the price went from 80 to 100, what percent is that", "((100)-(80))/(80)*100"),
        ("how many hours are 38 * 4?", "38 * 4"),
        ("How much is 340 km times 0.30", "(340) times (0.30)"),
        ("how much is 0.30 times 480 km", "(0.30) times (480)"),
        ("what are 90 minutes divided by 4", "(90)/(4)"),
        ("how much are 3 boxes at 14.95?", "(3)*(14.95)"),
        (
            "What do I pay for a jacket of 80 euros if it is reduced by 25 percent?",
            "(80 euros)*(1-(25)%)",
        ),
        ("how much is a 300 dollar phone if it is 20 percent cheaper", "(300 dollar)*(1-(20)%)"),
        ("what does a ticket of 60 cost if the price goes up by 5%", "(60)*(1+(5)%)"),
        (
            "I earn 3,200 a month and get a 4% raise. What's my new salary?",
            "(3,200)*(1+(4)%)",
        ),
        ("I get 4000 and take a pay cut of 10%, what do I earn now", "(4000)*(1-(10)%)"),
        ("a bill of 84 for 6 people, what does everyone pay", "(84)/(6)"),
        ("how many quarters are there in five", "4*(5)"),
        ("how many quarters are there in 5?", "4*(5)"),
        ("How many halves in three?", "2*(3)"),
        ("how many thirds are in two and a half", "3*(2.5)"),
        ("tell me how many tenths there are in seven", "10*(7)"),
        ("how many eighths make a whole", "8*1"),
        ("how many sixteenths go into three quarters", "16*(3/4)"),
        ("how many hundredths are in 1,200", "100*(1,200)"),
        ("what is 15% of 240 at the moment?", "15% of 240"),
        ("how many quarters are there in five these days", "4*(5)"),
    ],
)
def test_phrases_become_formulas(question: str, expression: str) -> None:
    (match,) = match_tools(question, TOOLS)
    # Shares are percentages, so that their answers have the sign.
    share = expression.removesuffix("*100")
    form = {} if share == expression else {"form": "percent"}
    assert match.arguments == {"expression": share, **form}
    assert match.tool in {"calculate", "work_out"}


@pytest.mark.parametrize(
    "question", ["can you divide 126 by 9 evenly?", "could 126 be divided by 9 without a remainder"]
)
def test_a_division_without_a_remainder_is_a_yes_or_no_question(question: str) -> None:
    (match,) = match_tools(question, TOOLS)
    arguments = {"number": "126", "other": "9", "relation": "divisible by"}
    assert (match.tool, match.arguments) == ("check", arguments)


@pytest.mark.parametrize(
    ("question", "tool", "arguments"),
    [
        ("how do you factor 6x - 18?", "factor", {"expression": "6x - 18"}),
        ("days until Christmas", "count_days", {"start": "today", "end": "--12-25"}),
        ("how long is it till the 3rd of May", "count_days", {"start": "today", "end": "--05-03"}),
        (
            "how many days from 10 June to 24 August",
            "count_days",
            {"start": "--06-10", "end": "--08-24"},
        ),
        ("is 29 February 2027 a real date?", "check_date", {"date": "2027-02-29"}),
        ("does 31 September exist", "check_date", {"date": "--09-31"}),
        ("was there a February 29 in 1900?", "check_date", {"date": "1900-02-29"}),
        ("what day of the week is New Year's Eve?", "find_weekday", {"date": "--12-31"}),
        ("how many litres are 5 US gallons", "convert_units", {"from_unit": "gallons"}),
        ("how many quarters are in 3 years", "convert_units", {"from_unit": "years"}),
        ("tell me how many days there are in a leap year", "convert_units", {"to_unit": "days"}),
        ("how many minutes there are in a week", "convert_units", {"from_unit": "week"}),
        ("For which values of x is x^2 equal to 49?", "solve", {"equation": "x^2 equal to 49"}),
        ("For which value of x does 3x equal 21?", "solve", {"equation": "3x equal 21"}),
    ],
)
def test_a_question_in_other_words_is_matched(
    question: str, tool: str, arguments: dict[str, str]
) -> None:
    (match,) = match_tools(question, TOOLS)
    assert match.tool == tool
    assert {name: match.arguments[name] for name in arguments} == arguments


@pytest.mark.parametrize(
    ("question", "source", "target"),
    [
        ("What is the yen worth in dollars these days?", "yen", "dollars"),
        ("how is the pound doing nowadays", "pound", "EUR"),
        ("what is the krone worth at present, please", "krone", "EUR"),
        ("how many euros do I get for a pound at this time?", "pound", "euros"),
        ("the rate of the yen to the euro right now", "yen", "euro"),
        ("Right now, what is the yen worth in dollars?", "yen", "dollars"),
    ],
)
def test_a_rate_for_the_present_is_the_latest(question: str, source: str, target: str) -> None:
    (match,) = match_tools(question, {"convert": currency.CONVERT})
    assert match.arguments == {"amount": "1", "from_currency": source, "to_currency": target}


def test_both_of_a_pair_are_asked_about() -> None:
    matches = match_tools("is sixty divisible by both 4 and 7?", TOOLS)
    assert [(match.tool, match.arguments["other"]) for match in matches] == [
        ("check", "4"),
        ("check", "7"),
    ]


@pytest.mark.parametrize(
    "question",
    [
        "Is 51 prime? If not, what are its factors?",
        "can you tell me if 51 is prime and if not, what its factors are",
    ],
)
def test_the_factors_of_a_number_are_asked_behind_whether_it_is_prime(question: str) -> None:
    matches = match_tools(question, TOOLS)
    assert [match.tool for match in matches] == ["check", "factor"]
    assert matches[1].arguments == {"expression": "51"}


@pytest.mark.parametrize(
    ("question", "expression"),
    [
        ("what is that times 3", "(4) times 3"),
        ("and that squared?", "(4) squared"),
        ("that divided by 8", "(4) divided by 8"),
        ("what's the result minus 10", "(4) minus 10"),
        ("multiply that by 2", "(4)*(2)"),
    ],
)
def test_a_formula_continues_from_the_last_answer(question: str, expression: str) -> None:
    (match,) = match_tools(question, TOOLS, ["4"])
    assert (match.tool, match.arguments) == ("calculate", {"expression": expression})


# They have the words of a phrase, and are none or more than one.
@pytest.mark.parametrize(
    "question",
    [
        "my phone is 20% off the hook since 3 days",
        "what is a 15% tip on half of 60",
        "not 20% off 80",
        "split the team into 2 groups of 5",
        "how many people are in 3 teams",
        "share the 2 files with 3 people",
        "divide 10 squared by 4",
        "I was born in 1990 in Paris",
        "how many 10s did the jury give in 2 rounds",
        "between 5 and 7 people attended",
        "the ratio of men to women is 3 to 4",
        "round 17 of the tournament",
        "when 5% of members leave, what happens",
        "5 apples in oranges",
        "how many days in a week can I work from home",
        "is 10 pounds the price of a key",
        "what is the currency of trust",
        "is 2026-05-01 between 2026-04-01 and 2026-06-01",
        "how strong is the coffee against the tea",
        "the pound in my garden has 3 dogs",
        "convert my garage into a gym",
        "write the 3 reports in words that people know",
        "the area of a circle of 5 friends is wide",
        "5 pens cost too much, how much do they cost",
        "2 of them each get 3 days a month",
        "do I get 3 days each month",
        "what currency do our 3 invoices have",
        "is a pound of coffee more than a dollar",
        "how many quarters does a game have",
        "how many quarters are in 2026",
        "how many days are there in 2024",
        "how many quarters are in 3 dollars",
        "how many thirds in a game of 3",
    ],
)
def test_the_words_of_a_phrase_alone_match_nothing(question: str) -> None:
    assert match_tools(question, TOOLS) == []


@pytest.mark.parametrize(
    "question",
    [
        "1+" * 500_000,
        "1" + " " * 1_000_000 + "é",
        "log10" * 200_000 + "é",
        "solve 1" + " for" * 250_000,
        "solve 1 " + " " * 1_000_000 + "?x",
        "integrate 1" + " from 1" * 150_000,
        "derivative of 1" + " by x" * 200_000,
        "calculate (" + "(" * 1_000_000,
        "1,000," * 170_000 + " usd in",
        "100 usd" + " " * 1_000_000 + "x",
        "a" * 1_000_000,
    ],
    ids=lambda question: question[:24],
)
def test_the_longest_questions_are_matched_within_the_budget(
    question: str, caplog: pytest.LogCaptureFixture
) -> None:
    question = question[: QUESTION_LIMIT_CHARS - 1] + question[-1]
    # Each agent has its tools, and its own limit.
    currency_tools = {
        tool: TOOLS[tool]
        for tool in ("list_currencies", "get_country_currency", "compare", "convert")
    }
    math_tools = {tool: rules for tool, rules in TOOLS.items() if tool not in currency_tools}
    with caplog.at_level("WARNING"):
        match_tools(question, math_tools)
        match_tools(question, currency_tools)
    # A search that is not within the budget leaves a log entry.
    assert caplog.records == []
