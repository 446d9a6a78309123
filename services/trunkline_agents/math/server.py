"""The math tools over MCP: arithmetic, algebra and calculus."""

import argparse
from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import patterns
from trunkline_agents.math.engine import EngineLimits, MathEngine
from trunkline_agents.math.parser import parse_equation, parse_expression, parse_variable
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.whole_numbers import compute_whole_number
from trunkline_agents.mcp_server import (
    READ_ONLY,
    ToolAnswer,
    build_tool_server,
    run_stdio_server,
    tool,
)

NAME = "trunkline-mcp-math"
MAX_DIGITS = 1_000
MAX_ORDER = 10


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
    """The tools. They check formulas, and the engine computes."""

    def __init__(self, engine: MathEngine) -> None:
        self._engine = engine

    @tool(Calculation)
    async def calculate(
        self,
        expression: Formula,
        digits: Annotated[
            int | None, Field(description="Significant digits of the answer, 1 to 1000.")
        ] = None,
    ) -> ToolAnswer:
        """Work out a number exactly ("15% of 240", "sqrt(2)"), or simplify an expression."""
        # Users add '=' as on a pocket calculator.
        formula = _strip_punctuation(expression).removesuffix("=")
        node = parse_expression(formula)
        check_size(node)
        if digits is None and (number := compute_whole_number(node)) is not None:
            return ToolAnswer(str(number), {"exact": str(number), "approximation": None})
        if digits is not None and not 1 <= digits <= MAX_DIGITS:
            raise InvalidArgumentError("digits", f"Ask for 1 to {MAX_DIGITS:,} digits.")
        arguments = {"expression": formula, "digits": digits}
        return await self._engine.compute("calculate", arguments)

    @tool(Factors)
    async def factor(self, expression: Formula) -> ToolAnswer:
        """Factor an expression, or a whole number into primes."""
        return await self._engine.compute("factor", {"expression": _check_formula(expression)})

    @tool(Expansion)
    async def expand(self, expression: Formula) -> ToolAnswer:
        """Multiply an expression out."""
        return await self._engine.compute("expand", {"expression": _check_formula(expression)})

    @tool(Solutions)
    async def solve(
        self,
        equation: Annotated[
            str, Field(description="An equation such as x^2-5x+6=0; without = it equals zero.")
        ],
        variable: Letter = None,
    ) -> ToolAnswer:
        """Solve an equation for one variable, exactly where possible."""
        formula = _strip_punctuation(equation)
        sides = parse_equation(formula)
        check_size(sides.left)
        check_size(sides.right)
        arguments = {"equation": formula, "variable": _parse_letter(variable)}
        return await self._engine.compute("solve", arguments)

    @tool(Derivative)
    async def differentiate(
        self,
        expression: Formula,
        variable: Letter = None,
        order: Annotated[int, Field(description="Which derivative, 1 to 10.")] = 1,
    ) -> ToolAnswer:
        """Take the derivative of an expression."""
        formula = _check_formula(expression)
        if not 1 <= order <= MAX_ORDER:
            raise InvalidArgumentError("order", f"Ask for derivative 1 to {MAX_ORDER}.")
        arguments = {"expression": formula, "variable": _parse_letter(variable), "order": order}
        return await self._engine.compute("differentiate", arguments)

    @tool(Integral)
    async def integrate(
        self,
        expression: Formula,
        variable: Letter = None,
        lower: IntegrationLimit = None,
        upper: IntegrationLimit = None,
    ) -> ToolAnswer:
        """Integrate an expression: an antiderivative, or with both limits the value."""
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
    tools = MathTools(engine)
    return build_tool_server(
        NAME,
        (
            (tools.factor, "Factor", READ_ONLY, patterns.FACTOR),
            (tools.expand, "Expand", READ_ONLY, patterns.EXPAND),
            (tools.differentiate, "Differentiate", READ_ONLY, patterns.DIFFERENTIATE),
            (tools.integrate, "Integrate", READ_ONLY, patterns.INTEGRATE),
            (tools.solve, "Solve an equation", READ_ONLY, patterns.SOLVE),
            (tools.calculate, "Calculate", READ_ONLY, patterns.CALCULATE),
        ),
        title="Math",
        instructions="Exact arithmetic, algebra and calculus. Never runs code.",
    )


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
