"""The math agent: its card, whose tags decide routing, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec

_ARITHMETIC = AgentSkill(
    id="arithmetic",
    name="Arithmetic",
    description="Works out expressions exactly, or to a requested number of digits.",
    tags=[
        *("calculate", "compute", "evaluate", "simplify"),
        *("multiply", "multiplied", "divide", "divided", "sqrt", "cbrt", "factorial"),
        # With a number, since people also read the New York Times, and log in.
        *("plus #", "minus #", "times #", "add #", "subtract #", "# percent", "# digits"),
        *("sum of #", "root of #", "# squared", "# cubed", "# to the power", "gcd", "lcm"),
        *(
            "# times",
            "# to the # th",
            "# to the # rd",
            "# to the # nd",
            "total of #",
            "#/# of #",
            "# divided by",
            "# modulo",
            "# mod #",
            "# over #",
        ),
        *("product of #", "difference between #", "difference of #", "remainder", "take # away"),
        *("# away from #", "go into #", "goes into #", "# go into", "divisible"),
        *("double #", "triple #", "twice #", "half #", "square of #", "cube of #"),
        *("# per cent", "percentage of #", "percent of #", "a percentage of", "what percent"),
        *("increase # by #", "decrease # by #", "reduce # by #", "raise # by #", "lower # by #"),
        *("average of #", "mean of #", "median of #", "largest of #", "biggest of #"),
        *("smallest of #", "maximum of #", "minimum of #", "common divisor", "common multiple"),
        *("common factor", "round #", "# decimal places", "square root", "cube root"),
        *(
            "sine",
            "cosine",
            "sine of",
            "tangent of #",
            "log base",
            "natural log",
            "natural logarithm",
        ),
        *("logarithm", "absolute value", "sin pi", "cos pi", "tan pi", "ln e", "log e", "ln x"),
        *(
            "arcsin",
            "arccos",
            "arctan",
            "to the power of",
            "what is pi",
            "value of pi",
            "value of e",
        ),
        *("# of #", "as a fraction of", "sum of the first #", "sum of all", "# reduced by #"),
        *("# increased by #", "negative #", "how much more is #"),
        *("percentage change", "percent change"),
        *("sin #", "cos #", "tan #", "exp #", "log #", "ln #", "sin x", "cos x", "tan x", "log x"),
        *(
            "+",
            "-",
            "*",
            "/",
            "^",
            "**",
            "%",
            "!",
            "\N{MULTIPLICATION SIGN}",
            "\N{MINUS SIGN}",
            "÷",
            "√",
        ),
    ],
    examples=["what is 1+2", "(2+3)*4", "15% of 240", "sqrt(2) to 10 digits"],
)
_STATEMENTS = AgentSkill(
    id="statements",
    name="Yes-or-no questions",
    description="Compares numbers, and says whether one is prime, even, odd, square or divisible.",
    tags=[
        *("prime number", "# prime", "# a prime", "# even", "# an even", "# odd", "# an odd"),
        *("perfect square", "# a square", "# divisible", "# a multiple of", "# a factor of #"),
        *("# bigger than", "# greater than", "# larger than", "# more than", "# equal #"),
        *("# less than", "# smaller than", "# equal to #", "# equals #", "# divide #"),
        *("which is bigger", "which is larger", "which is greater", "which is smaller"),
        *("bigger than #", "greater than #", "larger than #", "less than #", "smaller than #"),
        *("bigger # or #", "larger # or #", "smaller # or #", ">", "<"),
    ],
    examples=["is 97 prime?", "is 12 divisible by 5"],
)
_REWRITING = AgentSkill(
    id="rewriting",
    name="Factor and expand",
    description="Factors and expands expressions, and factors whole numbers into primes.",
    tags=[
        *("factor #", "factor x", "factorise", "factorize", "factors of", "prime factors"),
        *("prime factorization", "prime factorisation", "expand", "multiply out"),
    ],
    examples=["factor x^2-5x+6", "expand (x+1)^3"],
)
_EQUATIONS = AgentSkill(
    id="equations",
    name="Equations",
    description="Solves equations.",
    tags=["solve", "equation", "=", "roots of", "zeros of"],
    examples=["solve x^2-5x+6=0"],
)
_CALCULUS = AgentSkill(
    id="calculus",
    name="Calculus",
    description="Finds derivatives and integrals.",
    tags=[
        *("derivative", "differentiate", "derive"),
        *("integral", "integrate", "antiderivative", "area under", "area below"),
    ],
    examples=["derivative of x^3", "integrate x*sin(x)"],
)


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="math",
        description="Calculates, compares, solves, differentiates and integrates, exactly.",
        skills=[_ARITHMETIC, _STATEMENTS, _REWRITING, _EQUATIONS, _CALCULUS],
        servers=["math"],
        repeatable=True,
    ),
    servers=lambda context: {
        "math": McpServer(command="trunkline-mcp-math", idle_s=context.mesh.tool_idle_s)
    },
)
