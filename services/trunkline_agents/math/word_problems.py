"""Sentences that state numbers and ask for one: areas of shapes, totals, shares, proportions.

Fragments of patterns and their formulas, as those of `phrases`.
"""

_UNIT = (
    r"(?:\s?(?:mm|cm|km|m|metres?|meters?|centimet(?:re|er)s?|feet|foot|ft|inch(?:es)?"
    r"|miles?|units?|yards?))?"
)


def _size(name: str) -> str:
    return rf"(?P<{name}>\d[\d.,]*(?:/\d+)?){_UNIT}"


_X, _Y, _Z = _size("x"), _size("y"), _size("z")
_MEASURED = (
    r"(?:\s(?:that\sis|which\sis|that\shas|with|of|whose|has|is|measuring|having|by|given))?"
    r"(?:\s(?:an?|the|its|sides?|edges?|length|radius|diameter|base|height|width|is|are|of|length))*\s"
)
_WIDE = r"(?:\s(?:long|wide|high|tall|deep|in\slength|in\swidth))?"
_BY = (
    rf"{_WIDE}\s?(?:x|by|and|times|,)(?:\s(?:an?|the|is|of|width|length|height|base|depth|and))*\s?"
)
_OF = r"\s(?:of|for)\s(?:an?|the|my|this|our)\s"
_RECTANGLE = (
    r"(?:rectangle|rectangular\s[a-z]+|room|garden|field|floor|wall|plot|table|parallelogram)"
)
SHAPES: tuple[tuple[str, str], ...] = (
    (rf"area{_OF}circle{_MEASURED}*?radius(?:\s(?:is|of))?\s{_X}", "pi*({x})^2"),
    (rf"area{_OF}circle{_MEASURED}*?diameter(?:\s(?:is|of))?\s{_X}", "pi*({x})^2/4"),
    (
        rf"(?:circumference|perimeter){_OF}circle{_MEASURED}*?radius(?:\s(?:is|of))?\s{_X}",
        "2*pi*({x})",
    ),
    (
        rf"(?:circumference|perimeter){_OF}circle{_MEASURED}*?diameter(?:\s(?:is|of))?\s{_X}",
        "pi*({x})",
    ),
    (rf"area{_OF}triangle{_MEASURED}{_X}{_BY}{_Y}{_WIDE}", "({x})*({y})/2"),
    (rf"area{_OF}{_RECTANGLE}{_MEASURED}{_X}{_BY}{_Y}{_WIDE}", "({x})*({y})"),
    (rf"perimeter{_OF}{_RECTANGLE}{_MEASURED}{_X}{_BY}{_Y}{_WIDE}", "2*(({x})+({y}))"),
    (rf"area{_OF}square{_MEASURED}{_X}{_WIDE}", "({x})^2"),
    (rf"perimeter{_OF}square{_MEASURED}{_X}{_WIDE}", "4*({x})"),
    (rf"volume{_OF}cube{_MEASURED}{_X}{_WIDE}", "({x})^3"),
    (rf"volume{_OF}(?:sphere|ball){_MEASURED}*?radius(?:\s(?:is|of))?\s{_X}", "4/3*pi*({x})^3"),
    (
        rf"volume{_OF}(?:box|cuboid|room|tank|block){_MEASURED}{_X}{_BY}{_Y}{_BY}{_Z}{_WIDE}",
        "({x})*({y})*({z})",
    ),
    (
        rf"volume{_OF}cylinder{_MEASURED}*?radius(?:\s(?:is|of))?\s{_X}{_BY}{_Y}{_WIDE}",
        "pi*({x})^2*({y})",
    ),
    (
        rf"hypotenuse{_OF}(?:right[-\s])?(?:angled\s)?triangle{_MEASURED}{_X}{_BY}{_Y}{_WIDE}",
        "sqrt(({x})^2+({y})^2)",
    ),
)

_MONEY = r"(?:\s?(?:dollars?|euros?|pounds?|usd|eur|gbp|cents?|€|£|\$))?"
_N = rf"(?P<x>[$€£]?\d(?:[\d.,]*\d)?{_MONEY})"
_M = rf"(?P<y>[$€£]?\d(?:[\d.,]*\d)?{_MONEY})"
_K = rf"(?P<z>[$€£]?\d(?:[\d.,]*\d)?{_MONEY})"
_WORDS = r"(?:\s(?:of\s)?[a-z]+){1,3}?"
_TAIL = r"(?:\s[a-z]+){0,6}"
_QUESTION = r"(?:\s?[,;.:]?\s(?:and\s|so\s)?(?:what|how\s(?:much|many|far|long))[a-z\s']{0,60})?"
_BREAK = r"\s?[,;.:]?\s(?:and\s|but\s|then\s)?"
_FRACTION = r"\(?(?P<p>\d{1,4}/\d{1,4})\)?"
_PERCENT = r"(?P<p>\d[\d.]*)\s?(?:%|per\s?cent)"
_OF_THEM = r"\sof\s(?:them|these|those|it|that|the\s[a-z]+(?:\s[a-z]+)?)"
_HOW = r"(?:how\s(?:much|many)|what)"
_MILES = r"\s?(?:km/h|kmh|kph|mph|(?:km|kilomet(?:re|er)s|miles)\s(?:per|an)\shour)"
_KM = r"\s?(?:km|kilomet(?:re|er)s|miles)"
_HOURS = r"\s?(?:h|hours?|hrs?)"
WORD_PROBLEMS: tuple[tuple[str, str], ...] = (
    # "if 5 pens cost 4 dollars, how much do 12 pens cost"
    (
        rf"{_N}{_WORDS}\s(?:costs?|make|weighs?|are|is|needs?|takes?){_TAIL}?\s{_M}{_TAIL}?{_BREAK}{_HOW}\s"
        rf"[a-z\s]*?{_K}(?:\s[a-z]+){{0,4}}",
        "({y})/({x})*({z})",
    ),
    # "a class has 28 pupils and 3/4 of them passed"
    (rf"{_N}{_WORDS}{_BREAK}{_FRACTION}{_OF_THEM}{_TAIL}{_QUESTION}", "({p})*({x})"),
    (rf"{_N}{_WORDS}{_BREAK}{_PERCENT}{_OF_THEM}{_TAIL}{_QUESTION}", "({p})%*({x})"),
    # "how long does it take to drive 240 km at 80 km/h", and what follows from it
    (
        rf"how\s(?:long|many\shours)\s[a-z\s]*?{_N}{_KM}\s[a-z\s]*?(?P<y>\d[\d.,]*){_MILES}{_TAIL}",
        "({x})/({y})",
    ),
    (
        rf"how\sfar\s[a-z\s]*?(?P<x>\d[\d.,]*){_HOURS}\s[a-z\s]*?(?P<y>\d[\d.,]*){_MILES}{_TAIL}",
        "({x})*({y})",
    ),
    (
        rf"how\sfar\s[a-z\s]*?(?P<x>\d[\d.,]*){_MILES}\s[a-z\s]*?(?P<y>\d[\d.,]*){_HOURS}{_TAIL}",
        "({x})*({y})",
    ),
    # "3 nights at 89 euros each", "31 pupils get 4 books each"
    *(
        (
            rf"{_N}{_WORDS}(?:\s(?:at|for|with|and|of|get|gets|have|has|need|needs|costs?|costing"
            rf"|pay|holds?)){{1,2}}\s{_M}(?:\s[a-z]+)?\s{each}",
            "({x})*({y})",
        )
        for each in (
            rf"(?:each|apiece){_QUESTION}{_TAIL}",
            # Without a question, people state what they get a month.
            rf"(?:an?|per|every)\s[a-z]+{_QUESTION.removesuffix('?')}",
        )
    ),
    # "we pay 1,850 a month, how much is that per year"
    *(
        (
            rf"{_N}\s(?:an?|per|each|every)\s{unit}{_BREAK}{_HOW}\s[a-z\s]*?\s(?:an?|per|in\san?|each"
            rf"|every|for\sa)\s(?:whole\s)?{longer}{_TAIL}",
            f"({{x}})*{factor}",
        )
        for unit, longer, factor in (
            ("month", "year", "12"),
            ("week", "year", "52"),
            ("day", "week", "7"),
            ("day", "year", "365"),
            ("hour", "day", "24"),
            ("quarter", "year", "4"),
        )
    ),
)
