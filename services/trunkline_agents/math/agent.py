"""The math agent: its card, whose tags decide routing, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec
from trunkline_agents.math.calendar_skills import CALENDAR, CLOCK
from trunkline_agents.math.everyday_skills import EVERYDAY
from trunkline_agents.math.everyday_sums import PARTS

_ARITHMETIC = AgentSkill(
    id="arithmetic",
    name="Arithmetic",
    description="Works out expressions exactly, or to a requested number of digits.",
    tags=[
        *("calculate", "compute", "evaluate", "simplify"),
        *("multiply", "multiplied", "divide", "divided", "sqrt", "cbrt", "factorial"),
        *(
            f"{verb} #"
            for verb in (
                *("adding", "subtracting", "multiplying", "dividing", "doubling", "halving"),
                *("squaring", "cubing", "rounding", "factoring"),
            )
        ),
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
        *(
            "# per cent",
            "percentage of #",
            "percent of #",
            "a percentage of",
            "what percent",
            "percentage is #",
            "# out of #",
        ),
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
            "by what percentage",
            "by what percent",
            "by which percentage",
            "percentage increase",
            "percent more than",
            "percent off",
            "percent discount",
            "# off",
        ),
        *("# tip", "percent tip", "tip on #", "tip on a", "# vat", "percent vat", "# discount"),
        *(
            "discount on",
            "as a fraction",
            "as a mixed",
            "into a mixed",
            "improper fraction",
            "into a fraction",
            "to a fraction",
            "as a decimal",
        ),
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
        "split #",
        *(
            f"{money} {joint}"
            for money in ("euros", "dollars", "pounds")
            for joint in ("between #", "among #", "by #", "divided", "shared", "split")
        ),
        *("share # among", "share #", "equally among", "equally between", "evenly between"),
        *("left over when", "left over if", "born in #", "years between # and #", "square #"),
        *("years from # to #", "years are between", "# rounded", "round up #", "round down #"),
        *("what of #", "is what of #", "log of #", "ln of #", "factorial of #", "sqrt of #"),
        *(
            "in percent",
            "add up #",
            "sum #",
            "sum up #",
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
        *(
            "# in words",
            "# out in words",
            "# as words",
            "# as a word",
            "spell #",
            "spell the number #",
        ),
        *("# in roman", "# to roman", "# into roman", "roman numerals", "roman numeral"),
        *("write out #", "# in letters", "# written out"),
        *("what fraction is #", "which fraction", "what decimal is #", "collect terms"),
        *("collect like terms", "combine like terms", "combine terms", "what percentage is"),
        *("reduced by #", "by a third", "by a quarter", "percent more is #", "percent less is #"),
        *("of what number", "of which number"),
        *("percent raise", "percent rise", "# raise", "percent surcharge", "# surcharge"),
        *("reduce #/#", "lowest terms", "simplest form", "simplest terms", "base # log"),
        *("cube #", "# by half", "# by a third", "# by a quarter"),
        *(f"{function} of #" for function in ("sin", "cos", "tan", "exp", "cosine", "cbrt", "abs")),
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
        *("# triangular", "# a triangular", "# a triangle number", "# a fibonacci", "fibonacci"),
        *("# a power of #", "# a palindrome", "# palindromic", "# positive", "# negative"),
        *("# an integer", "# a whole number", "split evenly", "split equally", "# be split"),
        *("# a positive", "# a negative", "than 1 and itself", "besides 1 and itself"),
        *("be divided by", "divided evenly", "evenly divided", "evenly by", "divide evenly"),
        *("# between #", "# in between #"),
        *("# in the range # to #", "# in the range from # to #", "# in the range of # to #"),
        *("# lie between #", "# fall between #", "# within the range"),
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
_MORE_MEASURES = (
    *("mile", "inch", "yard", "foot", "ounce", "gallon", "litre", "liter", "pint", "cup", "cups"),
    *("kilometre", "kilometer", "kilogram", "tablespoon", "tablespoons", "teaspoon", "teaspoons"),
    *("millimetres", "millimeters", "millilitres", "milliliters", "kilobytes", "terabytes"),
)
_TIMES = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
_JOINTS = (
    *("in #", "is #", "are #", "are in", "are there in #", "are there in a", "are there in an"),
    *(
        "there are in a",
        "there are in an",
        "make a",
        "make an",
        "make up a",
        "go into a",
        "fit in a",
    ),
    *("is a #", "are a #", "in a #", "is an #", "are in a #", "are there in a #"),
)
_GEOMETRY = AgentSkill(
    id="geometry",
    name="Areas and volumes",
    description="Computes areas, perimeters and volumes of simple shapes.",
    tags=[
        *("area of a circle", "area of a rectangle", "area of a square", "area of a triangle"),
        *("circumference", "perimeter of", "volume of a", "hypotenuse", "surface area"),
        *("area of the rectangle", "area of the circle", "area of the triangle"),
    ],
    examples=["area of a circle with radius 5", "perimeter of a rectangle 8 by 5"],
)
_WORD_PROBLEMS = AgentSkill(
    id="word-problems",
    name="Word problems",
    description="Works out totals, shares and proportions that a sentence states.",
    tags=[
        *("how much do #", "how much would #", "how much will #", "how much does #", "# each"),
        *("# apiece", "# of them", "each get #", "at # km", "at # mph"),
        *("euros each", "dollars each", "pounds each", "# euros each", "# dollars each"),
        *("# pounds each", "split a bill", "split the bill", "bill of #"),
        # Several of these outweigh the name of a currency. Those without a number are whole
        # questions for a result, which are asked of no document.
        *("is that each", "how much each", "each pay", "is it each", "does each person"),
        *("each person pay", "does each friend", "bill is #", "share a bill", "share the bill"),
        *(
            "friends share",
            "for # people",
            "# of us",
            "# friends",
            "spend #",
            "spent #",
            "and spend #",
        ),
        *("and spent #", "gave away #", "give away #", "how much is left", "how many are left"),
        *("how much do i have left", "how much money is left", "how many left", "change do i get"),
        *("how much change", "change will i get", "change from #", "# note", "how much in total"),
        *("much is that in total", "much is it in total", "how much altogether", "it altogether"),
        *(
            "come to altogether",
            "what is it in total",
            "due in #",
            "% off how much",
            "# off how much",
        ),
        *(f"{money} how much are #" for money in ("dollars", "euros", "pounds")),
        *(f"{money} an hour" for money in ("dollars", "euros", "pounds")),
        *(f"# {money} and a" for money in ("dollars", "euros", "pounds")),
        *(f"costs # {money}" for money in ("dollars", "euros", "pounds")),
        *(f"{money} what s the total" for money in ("dollars", "euros", "pounds")),
        *(f"{money} what is the total" for money in ("dollars", "euros", "pounds")),
        *(
            f"# {money}{what} one"
            for money in ("", "dollars ", "euros ", "pounds ")
            for what in ("what does", "what is", "how much is", "how much does")
        ),
        *("pack of #", "price of one", "cost of one", "recipe for #", "people needs #", "serves #"),
        *("do i need for #", "much for #", "per # km", "per # miles", "average speed"),
        *("# km h", "# kmh", "# kph", "# mph", "# km per hour", "# an hour", "hours at #"),
        *("how much is that for #", "how much are #", "how much do # cost", "how many do # cost"),
        *("at # # and #", "at # and #", "each plus #", "# for # euros", "# for # dollars"),
        *("much is the tip", "is the tip", "percent on a bill", "how much tip", "hour at #"),
        *("interest on #", "much interest", "percent interest", "compound interest"),
        *("over # years", "is # more", "is # less", "is # # more", "is # # less"),
        *("# percent more", "# percent less"),
        *("cost # dollars", "cost # euros", "cost # pounds", "# per hour", "# a month"),
    ],
    examples=["if 5 pens cost 4 dollars, how much do 12 pens cost"],
)
_UNITS = AgentSkill(
    id="units",
    name="Units",
    description="Converts lengths, masses, times, volumes, areas, speeds and temperatures.",
    tags=[
        *(f"# {unit} {joint}" for unit in (*_MEASURES, *_MORE_MEASURES) for joint in ("in", "to")),
        *(f"{unit} {joint}" for unit in (*_MEASURES, *_MORE_MEASURES) for joint in _JOINTS),
        *(f"{unit} {joint}" for unit in _TIMES for joint in _JOINTS),
        *(f"# {unit} {joint}" for unit in _TIMES for joint in ("in", "to")),
        *("# km h in", "# km h to", "# kmh in", "# kmh to", "# kph in", "km per hour in"),
        *("convert", "# m in", "# m to", "# g in", "# g to", "# l in", "# l to"),
        *(f"how many {unit} in {a}" for unit in _MEASURES for a in ("a", "an", "one")),
        *("seconds in a", "minutes in a", "minutes in an", "hours in a", "seconds in an"),
        *("days in a year", "weeks in a year", "months in a year", "days in a leap"),
        *(f"{part} {joint} a whole" for part in PARTS for joint in ("in", "are in", "make")),
        *("inches in a", "feet in a", "grams in a", "ounces in a", "meters in a", "metres in a"),
        *("# celsius", "# fahrenheit", "# degrees in", "# degrees to", "degrees celsius"),
        *("degrees fahrenheit", "degree fahrenheit", "degree celsius", "degrees centigrade"),
        # Pounds are money, too.
        *(
            tag
            for unit in ("kg", "kilos", "kilograms", "kilo", "grams", "g", "ounces", "oz", "stone")
            for tag in (
                *(f"pounds {joint} {unit}" for joint in ("in", "to", "into")),
                *(f"# pounds {joint} {unit}" for joint in ("in", "to", "into")),
                *(f"{unit} {joint} pounds" for joint in ("in", "to", "into")),
                *(f"# {unit} {joint} pounds" for joint in ("in", "to", "into")),
                *(f"pounds {joint} # {unit}" for joint in ("is", "are", "in", "are in")),
                *(f"{unit} {joint} # pounds" for joint in ("is", "are", "in", "are in")),
                # With decimals: "3.5 pounds"
                *(f"{unit} {joint} # # pounds" for joint in ("is", "are", "in", "are in")),
            )
        ),
        # Two units of one amount, and amounts that are compared.
        *(
            f"# {larger} {joint}#"
            for larger in (
                *(
                    "feet",
                    "foot",
                    "ft",
                    "hours",
                    "hour",
                    "minutes",
                    "days",
                    "weeks",
                    "stone",
                    "lbs",
                ),
                *("pound", "pounds", "years"),
            )
            for joint in ("", "and ")
        ),
        *(
            f"{unit} {compared} than"
            for unit in (*_MEASURES, *_MORE_MEASURES, *_TIMES, "pound", "pounds", "kilo", "g", "m")
            for compared in ("more", "less", "longer", "shorter", "heavier", "lighter", "bigger")
        ),
        *(f"which is {order}" for order in ("longer", "heavier", "lighter", "shorter", "faster")),
        *(f"# {unit} between" for unit in (*_MEASURES, *_TIMES)),
        *("heavier than", "lighter than", "a dozen", "dozens", "dozen is", "dozen are"),
        *(
            f"# # {joint} {unit}"
            for joint in ("in", "to")
            for unit in ("cm", "centimeters", "meters")
        ),
        *(
            "# f in c",
            "# f to c",
            "# c in f",
            "# c to f",
            "# dozen",
            "# pairs",
            "in feet and inches",
        ),
        *(
            "in hours and minutes",
            "many hours and minutes",
            "in minutes and seconds",
            "in days and hours",
            "in weeks and days",
        ),
        *(
            f"{unit} {joint} a {of}"
            for unit in ("tablespoons", "teaspoons", "cups")
            for joint in ("in", "are in")
            for of in ("cup", "tablespoon", "pint")
        ),
        *("is # kg", "in # kg", "are # kg", "ounces in a pound", "ounces are in a pound"),
        *("# of an hour", "# of a day", "# of a mile", "# of a year", "# of a minute"),
    ],
    examples=["5 km in miles", "how many minutes are in 3.5 hours"],
)
# An ISO date is three numbers.
_ISO_DATE = "# # #"
_DATES = AgentSkill(
    id="dates",
    name="Dates",
    description="Counts the days between dates, finds later and earlier dates, and weekdays.",
    tags=[
        *("day of the week", "weekday", "what is the date", "what date is it", "what day is it"),
        *(
            "date today",
            "today s date",
            "what day is today",
            "date of today",
            "what day is tomorrow",
        ),
        *(f"between {_ISO_DATE} and", f"from {_ISO_DATE} to", f"from {_ISO_DATE} until"),
        *("from today until", "from today to", "from today till", "between today and"),
        *("from now until", "from tomorrow until", "from tomorrow to"),
        *(f"{joint} until {_ISO_DATE}" for joint in ("left", "remain", "remaining", "is it", "go")),
        *(f"{word} {_ISO_DATE} and" for word in ("days between", "weeks between")),
        *(
            f"{unit} {joint} {_ISO_DATE}"
            for unit in ("day", "days", "week", "weeks", "month", "months", "year", "years")
            for joint in ("after", "before", "from", "since", "until", "till", "to", "past")
        ),
        *(
            f"# {unit} {joint}"
            for unit in ("days", "weeks", "months", "years", "day", "week", "month", "year")
            for joint in ("after today", "after tomorrow", "before today", "from today", "from now")
        ),
        *(f"{_ISO_DATE} {sign} #" for sign in ("plus", "minus")),
        *(f"what day {verb} {_ISO_DATE}" for verb in ("is", "was", "will", "did", "does")),
        *(f"which day {verb} {_ISO_DATE}" for verb in ("is", "was", "will", "did", "does")),
        # A date without a year is one number.
        *(
            f"{words} #"
            for words in (
                *("days until", "days till", "days to", "days before", "days since", "days from"),
                *("days between", "weeks until", "weeks till", "weeks since", "weeks between"),
                *("left until", "left till", "is it until", "is it till", "how long until"),
                *("how long till", "days is it from", "days are there between"),
            )
        ),
        *("a real date", "a valid date", "a real day", f"does {_ISO_DATE} exist", "does # exist"),
        *(f"{verb} there a {_ISO_DATE}" for verb in ("is", "was")),
        *(f"{date} in #" for date in ("date", "date is it", "date is", "day is it", "day is")),
        *(f"date # {unit} ago" for unit in ("days", "weeks", "months", "years")),
        *("what date will it be", "what date was it", "what day will it be", "what day was it"),
        *(
            f"{_ISO_DATE} {joint}{name}"
            for name in (
                *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
            )
            for joint in ("a ", "on a ", "")
        ),
        *(
            f"days {verb} {month}"
            for month in (
                *("january", "february", "march", "april", "may", "june", "july", "august"),
                *("september", "october", "november", "december"),
            )
            for verb in ("has", "does", "are in", "are there in", "in", "did", "had")
        ),
    ],
    examples=["how many days from 1 March 2024 to 15 May 2024", "what date is 90 days after today"],
)
_REWRITING = AgentSkill(
    id="rewriting",
    name="Factor and expand",
    description="Factors and expands expressions, and factors whole numbers into primes.",
    tags=[
        *("factor #", "factor x", "factorise", "factorize", "factors of", "prime factors"),
        *("prime factorization", "prime factorisation", "expand", "multiply out"),
        *("factored form", "factorised form", "factorized form", "expanded form"),
        *("# as a product", "remove the brackets", "remove the parentheses"),
    ],
    examples=["factor x^2-5x+6", "expand (x+1)^3"],
)
_EQUATIONS = AgentSkill(
    id="equations",
    name="Equations",
    description="Solves equations.",
    tags=[
        *("solve", "equation", "=", "roots of", "zeros of", "squared equals #", "cubed equals #"),
        *("x equals #", "what is x", "what s x", "find x"),
    ],
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


def _split_skill(skill: AgentSkill) -> tuple[AgentSkill, AgentSkill]:
    """Return the skill with its tags that have a number, and a general one with the others.

    "# coffees at #" is a sum whichever agents there are. "In total" is also said of what an agent
    for invoices holds, whose tags come first.
    """
    return (
        AgentSkill(
            id=skill.id,
            name=skill.name,
            description=skill.description,
            tags=[tag for tag in skill.tags if "#" in tag],
            examples=skill.examples,
        ),
        AgentSkill(
            id=f"{skill.id}-words",
            name=f"{skill.name} in words",
            description=skill.description,
            tags=[*(tag for tag in skill.tags if "#" not in tag), "general"],
        ),
    )


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="math",
        description="Calculates, compares, solves, differentiates and integrates, exactly.",
        skills=[
            _ARITHMETIC,
            _STATEMENTS,
            _WORD_PROBLEMS,
            _GEOMETRY,
            _UNITS,
            _DATES,
            *_split_skill(CALENDAR),
            *_split_skill(CLOCK),
            *_split_skill(EVERYDAY),
            _REWRITING,
            _EQUATIONS,
            _CALCULUS,
        ],
        servers=["math"],
        repeatable=True,
    ),
    servers=lambda context: {
        "math": McpServer(command="trunkline-mcp-math", idle_s=context.mesh.tool_idle_s)
    },
)
