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
        *("percentage change", "percent change", "percent increase", "percent decrease"),
        *(
            "many percent",
            "percentage increase",
            "percent more than",
            "percent off",
            "percent discount",
            "# off",
        ),
        *("# tip", "percent tip", "tip on #", "tip on a", "# vat", "percent vat", "# discount"),
        *("discount on", "as a fraction", "into a fraction", "to a fraction", "as a decimal"),
        *("to a decimal", "into a decimal", "to a percent", "to a percentage", "as a percentage"),
        *(
            "as a percent",
            "ratio # #",
            "ratio of # to #",
            "# s are in #",
            "# s are there in #",
            "# s in #",
        ),
        *("numbers from # to #", "numbers between # and #", "integers from # to #"),
        *("of the numbers #", "# and # / #", "reciprocal of #", "# choose #", "# x #", "# x"),
        *("split # between", "split # among", "split # by", "split # into", "split # ways"),
        *("# split between", "divide # between", "divide # among", "share # between", "# ways"),
        *("share # among", "share #", "equally among", "equally between", "evenly between"),
        *("left over when", "left over if", "born in #", "years between # and #", "square #"),
        *("years from # to #", "years are between", "# rounded", "round up #", "round down #"),
        *("what of #", "is what of #", "log of #", "ln of #", "factorial of #", "sqrt of #"),
        *(
            "in percent",
            "add up #",
            "max of #",
            "min of #",
            "halve #",
            "take away #",
            "# goes up",
            "# and goes up",
        ),
        *("and goes up #", "and goes down #", "goes up by #", "goes down by #"),
        *("square that", "square it", "double that", "double it", "halve that", "halve it"),
        *("triple that", "triple it", "cube that", "cube it", "save with #"),
        *("cube #", "# by half", "# by a third", "# by a quarter"),
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
        *(
            "prime number",
            "# prime",
            "# a prime",
            "# is prime",
            "# is a prime",
            "# even",
            "# an even",
            "# odd",
            "# an odd",
        ),
        *(
            "perfect square",
            "# a square",
            "# divisible",
            "# a multiple of",
            "# a factor of #",
            "# a divisor of #",
        ),
        *("# bigger than", "# greater than", "# larger than", "# more than", "# equal #"),
        *("# less than", "# smaller than", "# equal to #", "# equals #", "# divide #"),
        *("which is bigger", "which is larger", "which is greater", "which is smaller"),
        *("bigger than #", "greater than #", "larger than #", "less than #", "smaller than #"),
        *("coprime", "relatively prime", "leap year", "perfect cube", "# a perfect", "# composite"),
        *("be divided by", "divided evenly", "evenly divided", "evenly by", "divide evenly"),
        *("bigger # or #", "larger # or #", "smaller # or #", ">", "<"),
    ],
    examples=["is 97 prime?", "is 12 divisible by 5"],
)
# Only beside "in", "to" or a number: documents have them too.
_MEASURES = (
    *("km", "kilometers", "kilometres", "meters", "metres", "cm", "centimeters", "centimetres"),
    *("mm", "miles", "feet", "inches", "yards", "kg", "kilos", "kilograms", "grams", "ounces"),
    *("liters", "litres", "ml", "gallons", "pints", "acres", "hectares", "mph", "kelvin"),
    *("celsius", "fahrenheit", "bytes", "megabytes", "gigabytes", "lbs"),
)
_TIMES = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
_UNITS = AgentSkill(
    id="units",
    name="Units",
    description="Converts lengths, masses, times, volumes, areas, speeds and temperatures.",
    tags=[
        *(f"# {unit} {joint}" for unit in _MEASURES for joint in ("in", "to")),
        *(f"{unit} {joint}" for unit in _MEASURES for joint in ("in #", "is #", "are #", "are in")),
        *(
            f"{unit} {joint}"
            for unit in _TIMES
            for joint in ("in #", "is #", "are #", "are in", "are there in #")
        ),
        *(f"# {unit} {joint}" for unit in _TIMES for joint in ("in", "to")),
        *("convert", "# m in", "# m to", "# g in", "# g to", "# l in", "# l to"),
        *("seconds in a", "minutes in a", "minutes in an", "hours in a", "seconds in an"),
        *("days in a year", "weeks in a year", "months in a year", "days in a leap"),
        *("inches in a", "feet in a", "grams in a", "ounces in a", "meters in a", "metres in a"),
        *("# celsius", "# fahrenheit", "# degrees in", "# degrees to", "degrees celsius"),
        # Pounds are money, too.
        *("pounds in kg", "pounds to kg", "pounds in kilos", "pounds to kilos", "pounds in stone"),
        *(
            "# pounds in kg",
            "# pounds to kg",
            "# kg in pounds",
            "# kg to pounds",
            "kg in pounds",
            "kg to pounds",
            "kilos in pounds",
        ),
        *("pounds is # kg", "pounds are # kg", "pounds in # kg", "is # kg", "in # kg", "are # kg"),
        *(
            "ounces is # pounds",
            "ounces are # pounds",
            "ounces are in # pounds",
            "ounces in # pounds",
        ),
        *("# pounds in ounces", "# pounds to ounces", "# pounds in grams", "grams are in # pounds"),
        *("kg are in # pounds", "grams is # pounds", "ounces in a pound", "ounces are in a pound"),
        *("kg is # pounds", "kg are # pounds", "kg in # pounds", "kilos is # pounds"),
    ],
    examples=["5 km in miles", "how many minutes are in 3.5 hours"],
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
        skills=[_ARITHMETIC, _STATEMENTS, _UNITS, _REWRITING, _EQUATIONS, _CALCULUS],
        servers=["math"],
        repeatable=True,
    ),
    servers=lambda context: {
        "math": McpServer(command="trunkline-mcp-math", idle_s=context.mesh.tool_idle_s)
    },
)
