"""The math tools over MCP: arithmetic, algebra and calculus."""

import argparse
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import patterns
from trunkline_agents.math.engine import EngineLimits, MathEngine
from trunkline_agents.math.parser import parse_equation, parse_expression, parse_variable
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.whole_numbers import compute_whole_number
from trunkline_agents.mcp_server import (
    MATCH_KEY,
    READ_ONLY,
    ToolAnswer,
    call_result,
    match_whole,
    run_stdio_server,
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

    async def calculate(
        self,
        expression: Formula,
        digits: Annotated[
            int | None, Field(description="Significant digits of the answer, 1 to 1000.")
        ] = None,
    ) -> Annotated[CallToolResult, Calculation]:
        """Work out a number exactly ("15% of 240", "sqrt(2)"), or simplify an expression."""
        return await call_result(self._calculate(expression, digits))

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

    async def _calculate(self, expression: str, digits: int | None) -> ToolAnswer:
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
        instructions="Exact arithmetic, algebra and calculus. Never runs code.",
        log_level="WARNING",
    )
    tools = MathTools(engine)
    for function, title, declarations in (
        (tools.factor, "Factor", patterns.FACTOR),
        (tools.expand, "Expand", patterns.EXPAND),
        (tools.differentiate, "Differentiate", patterns.DIFFERENTIATE),
        (tools.integrate, "Integrate", patterns.INTEGRATE),
        (tools.solve, "Solve an equation", patterns.SOLVE),
        (tools.calculate, "Calculate", patterns.CALCULATE),
    ):
        server.add_tool(
            function,
            title=title,
            annotations=READ_ONLY,
            meta={MATCH_KEY: match_whole(declarations)},
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
