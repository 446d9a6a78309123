"""The math tools over MCP: sums, statements, algebra and calculus, with units and dates."""

import argparse
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import (
    calendar_patterns,
    clock_patterns,
    date_patterns,
    everyday_patterns,
    patterns,
    sum_patterns,
    unit_patterns,
)
from trunkline_agents.math.calendar_tools import CalendarTools
from trunkline_agents.math.clock_tools import ClockTools
from trunkline_agents.math.date_tools import DateTools
from trunkline_agents.math.engine import EngineLimits, MathEngine
from trunkline_agents.math.everyday_tools import EverydayTools
from trunkline_agents.math.parser import parse_equation, parse_expression, parse_variable
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.unit_tools import UnitTools
from trunkline_agents.math.whole_numbers import compute_whole_number
from trunkline_agents.mcp_server import (
    MATCH_KEY,
    READ_ONLY,
    ToolAnswer,
    call_result,
    run_stdio_server,
)

NAME = "trunkline-mcp-math"
MAX_DIGITS = 1_000
MAX_ORDER = 10
_PROPERTIES = (
    *("prime", "even", "odd", "composite", "square", "cube", "leap year"),
    *("triangular", "fibonacci", "palindrome", "integer"),
)


class Calculation(TypedDict):
    """The exact value, and its decimals if it is not a whole number."""

    exact: str
    approximation: str | None


class Solution(TypedDict):
    """One solution, or a family of them in an integer n."""

    exact: str
    approximation: str | None


class Solutions(TypedDict):
    """The solutions; `is_complete` is false if they were found numerically."""

    variable: str
    solutions: list[Solution]
    is_complete: bool


class Derivative(TypedDict):
    """The derivative of the given order."""

    variable: str
    order: int
    derivative: str


class Integral(TypedDict):
    """An antiderivative, or the value between the limits."""

    variable: str
    lower: str | None
    upper: str | None
    exact: str | None
    approximation: str | None


class Factors(TypedDict):
    """The product of primes or of factors."""

    factors: str


class Expansion(TypedDict):
    """The sum without products of sums."""

    expanded: str


class Verdict(TypedDict):
    """True or false, and the fact that decides it."""

    holds: bool
    fact: str


Relation = Literal[
    "prime",
    "even",
    "odd",
    "composite",
    "square",
    "cube",
    "leap year",
    "triangular",
    "fibonacci",
    "palindrome",
    "integer",
    "power of",
    "divisible by",
    "coprime with",
    "between",
    "<",
    "<=",
    "=",
    ">=",
    ">",
]
Formula = Annotated[
    str,
    Field(
        description="A formula: numbers, + - * / ^ % (percent) !, parentheses, single-letter "
        "variables, pi, e, i, functions such as sqrt(x), sin(x), ln(x), log(x, base), "
        "factorial(n), gcd(a, b). log is natural. 5x and 2(3+4) multiply."
    ),
]
Letter = Annotated[
    str | None, Field(description="The variable, one letter; by default the only one, or x.")
]
IntegrationLimit = Annotated[
    str | float | None, Field(description="A number or formula; oo is infinity.")
]


class MathTools:
    """The tools. They check formulas themselves, and the engine computes."""

    def __init__(self, engine: MathEngine) -> None:
        self._engine = engine

    async def calculate(
        self,
        expression: Formula,
        digits: Annotated[
            int | None, Field(description="Significant digits of the answer, 1 to 1000.")
        ] = None,
        form: Annotated[
            Literal["fraction", "mixed number", "ratio", "words", "roman", "percent"] | None,
            Field(description="The form of the answer: 7/4, 1 3/4, 7:4, words, Roman, 175%."),
        ] = None,
        where: Annotated[
            str | None, Field(description="The value of a variable, such as x = 9.")
        ] = None,
        other_reading: Annotated[
            str | None,
            Field(description="The formula of another meaning, which is answered first."),
        ] = None,
    ) -> Annotated[CallToolResult, Calculation]:
        """Work out a number exactly ("15% of 240", "sqrt(2)"), or simplify an expression."""
        return await call_result(
            self._calculate(expression, digits, form, where=where, other_reading=other_reading)
        )

    async def work_out(
        self,
        expression: Formula,
        form: Annotated[
            Literal["amount", "percent"], Field(description="An amount, or a percentage.")
        ] = "amount",
        other_reading: Annotated[
            str | None,
            Field(description="The formula of another meaning, which is answered first."),
        ] = None,
        other_meaning: Annotated[
            str | None, Field(description="When the other formula is meant, in some words.")
        ] = None,
    ) -> Annotated[CallToolResult, Calculation]:
        """Work out an everyday sum: a share of a bill, change, a price, a recipe, interest."""
        return await call_result(
            self._calculate(
                expression, None, form, other_reading=other_reading, other_meaning=other_meaning
            )
        )

    async def check(
        self,
        number: Formula,
        relation: Annotated[
            Relation, Field(description="A property of the number, or its relation to the other.")
        ],
        other: Annotated[
            str | None, Field(description="The divisor, or the number to compare with.")
        ] = None,
        second: Annotated[
            str | None, Field(description="The other end of the range, for `between`.")
        ] = None,
    ) -> Annotated[CallToolResult, Verdict]:
        """Answer a yes-or-no question: is 97 prime, is 12 divisible by 5, is 10 > 9."""
        return await call_result(self._check(number, relation, other, second))

    async def factor(self, expression: Formula) -> Annotated[CallToolResult, Factors]:
        """Factor an expression, or a whole number into primes."""
        return await call_result(self._rewrite("factor", expression))

    async def expand(self, expression: Formula) -> Annotated[CallToolResult, Expansion]:
        """Multiply an expression out."""
        return await call_result(self._rewrite("expand", expression))

    async def solve(
        self,
        equation: Annotated[
            str, Field(description="An equation such as x^2-5x+6=0; without = it equals zero.")
        ],
        variable: Letter = None,
    ) -> Annotated[CallToolResult, Solutions]:
        """Solve an equation for one variable, exactly where possible."""
        return await call_result(self._solve(equation, variable))

    async def differentiate(
        self,
        expression: Formula,
        variable: Letter = None,
        order: Annotated[int, Field(description="Which derivative, 1 to 10.")] = 1,
    ) -> Annotated[CallToolResult, Derivative]:
        """Take the derivative of an expression."""
        return await call_result(self._differentiate(expression, variable, order))

    async def integrate(
        self,
        expression: Formula,
        variable: Letter = None,
        lower: IntegrationLimit = None,
        upper: IntegrationLimit = None,
    ) -> Annotated[CallToolResult, Integral]:
        """Integrate an expression: an antiderivative, or with both limits the value."""
        return await call_result(self._integrate(expression, variable, lower=lower, upper=upper))

    async def _calculate(
        self,
        expression: str,
        digits: int | None,
        form: str | None,
        *,
        where: str | None = None,
        other_reading: str | None = None,
        other_meaning: str | None = None,
    ) -> ToolAnswer:
        # Users add '=' as on a pocket calculator.
        formula = _strip_punctuation(expression).removesuffix("=")
        node = parse_expression(formula)
        check_size(node)
        options = {
            "digits": digits,
            "form": form,
            "where": where,
            "other_reading": None if other_reading is None else _check_formula(other_reading),
            "other_meaning": other_meaning,
        }
        is_plain = not any(option is not None for option in options.values())
        if is_plain and (number := compute_whole_number(node)) is not None:
            return ToolAnswer(str(number), {"exact": str(number), "approximation": None})
        if digits is not None and not 1 <= digits <= MAX_DIGITS:
            raise InvalidArgumentError("digits", f"Ask for 1 to {MAX_DIGITS:,} digits.")
        return await self._engine.compute("calculate", {"expression": formula, **options})

    async def _check(
        self, number: str, relation: Relation, other: str | None, second: str | None
    ) -> ToolAnswer:
        if relation not in _PROPERTIES and other is None:
            raise InvalidArgumentError("other", f"'{relation}' needs a second number.")
        if relation == "between" and second is None:
            raise InvalidArgumentError("second", "'between' needs two numbers, its ends.")
        arguments = {
            "number": _check_formula(number),
            "relation": relation,
            "other": None if other is None else _check_formula(other),
            "second": None if second is None else _check_formula(second),
        }
        return await self._engine.compute("check", arguments)

    async def _rewrite(self, operation: str, expression: str) -> ToolAnswer:
        return await self._engine.compute(operation, {"expression": _check_formula(expression)})

    async def _solve(self, equation: str, variable: str | None) -> ToolAnswer:
        formula = _strip_punctuation(equation)
        sides = parse_equation(formula)
        check_size(sides.left)
        check_size(sides.right)
        return await self._engine.compute(
            "solve", {"equation": formula, "variable": _parse_letter(variable)}
        )

    async def _differentiate(self, expression: str, variable: str | None, order: int) -> ToolAnswer:
        formula = _check_formula(expression)
        if not 1 <= order <= MAX_ORDER:
            raise InvalidArgumentError("order", f"Ask for derivative 1 to {MAX_ORDER}.")
        arguments = {"expression": formula, "variable": _parse_letter(variable), "order": order}
        return await self._engine.compute("differentiate", arguments)

    async def _integrate(
        self,
        expression: str,
        variable: str | None,
        *,
        lower: str | float | None,
        upper: str | float | None,
    ) -> ToolAnswer:
        if (lower is None) != (upper is None):
            raise InvalidArgumentError("upper", "Give both limits, from … to …, or neither.")
        arguments: dict[str, Any] = {
            "expression": _check_formula(expression),
            "variable": _parse_letter(variable),
            "lower": None if lower is None else _check_formula(str(lower)),
            "upper": None if upper is None else _check_formula(str(upper)),
        }
        return await self._engine.compute("integrate", arguments)


def _strip_punctuation(text: str) -> str:
    # A sentence's last punctuation is not part of the formula.
    return text.strip().rstrip("?.,;").rstrip()


def _check_formula(text: str) -> str:
    formula = _strip_punctuation(text)
    check_size(parse_expression(formula))
    return formula


def _parse_letter(variable: str | None) -> str | None:
    return None if variable is None else parse_variable(variable)


def build_server(engine: MathEngine) -> MCPServer[Any]:
    """Return the MCP server with its tools."""
    server: MCPServer[Any] = MCPServer(
        NAME,
        title="Math",
        instructions="Exact arithmetic, algebra and dates. Never runs code.",
        log_level="WARNING",
    )
    tools = MathTools(engine)
    date_tools = DateTools()
    unit_tools = UnitTools()
    everyday_tools = EverydayTools()
    clock_tools = ClockTools()
    calendar_tools = CalendarTools()
    for function, title, declarations in (
        (unit_tools.compare_units, "Compare amounts", unit_patterns.COMPARE_UNITS),
        (unit_tools.convert_units, "Convert units", unit_patterns.CONVERT_UNITS),
        (everyday_tools.scale_price, "Scale a price", everyday_patterns.SCALE_PRICE),
        (everyday_tools.travel, "Speed, time and distance", everyday_patterns.TRAVEL),
        (tools.factor, "Factor", patterns.FACTOR),
        (tools.expand, "Expand", patterns.EXPAND),
        (tools.differentiate, "Differentiate", patterns.DIFFERENTIATE),
        (tools.integrate, "Integrate", patterns.INTEGRATE),
        (calendar_tools.measure_age, "Find an age", calendar_patterns.MEASURE_AGE),
        (date_tools.count_days, "Count days", date_patterns.COUNT_DAYS),
        (date_tools.move_date, "Move a date", date_patterns.MOVE_DATE),
        (date_tools.check_date, "Check a date", date_patterns.CHECK_DATE),
        (date_tools.find_weekday, "Find the weekday", date_patterns.FIND_WEEKDAY),
        (calendar_tools.find_named_day, "Find a named day", calendar_patterns.FIND_NAMED_DAY),
        (calendar_tools.count_named_days, "Count named days", calendar_patterns.COUNT_NAMED_DAYS),
        (calendar_tools.find_week, "Find the week", calendar_patterns.FIND_WEEK),
        (calendar_tools.find_leap_year, "Find a leap year", calendar_patterns.FIND_LEAP_YEAR),
        (everyday_tools.sort_numbers, "Sort numbers", everyday_patterns.SORT_NUMBERS),
        (
            everyday_tools.continue_sequence,
            "Continue a sequence",
            everyday_patterns.CONTINUE_SEQUENCE,
        ),
        (everyday_tools.read_roman, "Read a Roman numeral", everyday_patterns.READ_ROMAN),
        # Last, since matching gives each tool a share of what those before it left.
        (clock_tools.find_time, "Find a time of day", clock_patterns.FIND_TIME),
        (clock_tools.measure_time, "Measure the time", clock_patterns.MEASURE_TIME),
        (tools.work_out, "Work out an everyday sum", sum_patterns.WORK_OUT),
        (everyday_tools.add_items, "Add up", everyday_patterns.ADD_ITEMS),
        (tools.check, "Check a statement", patterns.CHECK),
        (tools.solve, "Solve an equation", patterns.SOLVE),
        (tools.calculate, "Calculate", patterns.CALCULATE),
    ):
        server.add_tool(
            function, title=title, annotations=READ_ONLY, meta={MATCH_KEY: declarations}
        )
    return server


async def serve(limits: EngineLimits) -> None:
    """Serve stdin and stdout until they close; then stop the worker."""
    engine = MathEngine(limits)
    try:
        await build_server(engine).run_stdio_async()
    finally:
        await engine.aclose()


def main() -> None:
    """Run the console script `trunkline-mcp-math`."""
    defaults = EngineLimits()
    parser = argparse.ArgumentParser(prog=NAME, description="An MCP server for math, on stdio.")
    parser.add_argument(
        "--limit-s", type=float, default=defaults.compute_s, help="for one computation, in seconds"
    )
    parser.add_argument(
        "--idle-s", type=float, default=defaults.idle_s, help="until an idle worker is killed"
    )
    options = parser.parse_args()
    limits = EngineLimits(compute_s=options.limit_s, idle_s=options.idle_s)
    run_stdio_server(lambda: serve(limits), service_name=NAME)
