"""The questions that each math tool answers: patterns that the `rules` model reads from `_meta`.

They are in RE2's syntax, which has no lookahead: `require` says what else a text has to contain.
"""

from typing import Any

from trunkline_agents.math.parser import CONSTANTS, FUNCTIONS
from trunkline_agents.math.phrases import (
    EACH,
    LARGER,
    NUMERALS,
    OPERAND,
    OTHER,
    PART_OF_A_FORMULA,
    PHRASES,
    SMALLER,
    SOME_WORDS,
    find_condition,
)
from trunkline_agents.math.sum_patterns import write_arguments
from trunkline_agents.math.wording import MONEY_WORDS, SPELLINGS
from trunkline_agents.mcp_server import MatchRuleJson

_WORDS = sorted(
    {
        *FUNCTIONS,
        *(name for name in CONSTANTS if len(name) > 1),
        *("arcsin", "arccos", "arctan", "ceiling"),
        *(word for phrase in SPELLINGS for word in phrase.split()),
        *("of", "off", "and", "base", "to", "the", "same", "power", "st", "nd", "rd", "th"),
    }
    # Their digits match as numbers, so that a text matches in one way only.
    - {"log10", "log2"}
    # They end a formula.
    - {"equals", "equal", "is"},
    key=len,
    reverse=True,
)
_CALLS = "|".join(sorted({*FUNCTIONS, "sine", "cosine", "tangent", "logarithm"}, key=len)[::-1])
_MONEY = "|".join(MONEY_WORDS)
_WORD = rf"(?:{'|'.join(_WORDS)}|{_MONEY}|[a-z])"
_SYMBOL = r"[\d.\s+\-\x{2212}\x{2013}*/^%!(),\x{d7}·÷√∛π²³°$€£¥]"
# Known words and single letters with symbols between them. It may be empty.
_FORMULA = rf"{_WORD}?(?:{_SYMBOL}+{_WORD})*{_SYMBOL}*"
_VERB = (
    r"(?:which(?:\s(?:one|number))?\s(?:is|are)|what(?:'s|\sis|\sare|\sabout|\sdoes|\sdo\s(?:you"
    r"|i|we)\sget\s(?:if|when)\s(?:you|i|we))"
    r"|how\s(?:much\s(?:is|are|does)|about)|calculat(?:e|ing)|comput(?:e|ing)|evaluat(?:e|ing)"
    r"|simplify(?:ing)?|find(?:ing)?|get(?:ting)?|giv(?:e|ing)\sme|take|work\sout|determine|do)"
)
_RESULT = r"(?:(?:result|value|answer|solution)\s(?:of|to)\s)?"
_LEAD = rf"^(?:please\s)?(?:{_VERB}\s+)?(?:the\s)?{_RESULT}"
_NAMED_ARGUMENT = rf"\b(?:{_CALLS})\s+(?:of\s)?(?:pi|infinity|[a-z])\b"
_A_DIGIT_OR_A_CALL = (
    rf"^\s*(?:pi|e)\s*$|\d|[√π²³]|\b(?:{_CALLS})\s?\(|\broot\sof\b|{_NAMED_ARGUMENT}"
)
# Texts that look like a formula match even if the grammar rejects them: the rejection says why.
_A_FORMULA = rf"[\d(^*/=+]|{_NAMED_ARGUMENT}|\b(?:squared|cubed|plus|minus|times)\b"
_A_FORMULA_OR_A_LETTER = rf"{_A_FORMULA}|^[a-z]\s?$"
_END = r"\s*[?.]?$"
# Some put the question last: "17 times 3 is what".
_ASKED_LAST = r"(?:\s(?:is|makes?|equals?|gives?|comes?\sto)\s(?:what|how\smuch))?"
_EQUALS = rf"(?:{_ASKED_LAST}|\s*(?:=|equals?(?:\sto)?|makes?|come\sto|is)?)"
_ASK = (
    r"^(?:please\s)?(?:(?:what(?:'s|\sis|\sare)|which\s(?:is|are)|find|calculate|compute|give\sme"
    r"|list|name|show\sme|write\sdown|determine|work\sout)\s+)?(?:all\s)?(?:the\s)?"
)
_BY = r"\s(?:with\srespect\sto|wrt|by)\s(?P<variable>[a-z])"

# A verb, the word between its operands, and the formula of the phrase.
_SPOKEN = (
    (r"multiply(?:ing)?", r"(?:by|with|and)", "({left})*({right})"),
    (r"divid(?:e|ing)", "by", "({left})/({right})"),
    (r"add(?:ing)?", r"(?:and|to|plus)", "({left})+({right})"),
    (
        r"(?:subtract|deduct|take(?:\saway)?)(?:ing)?",
        r"(?:away\s|off\s)?from",
        "({right})-({left})",
    ),
)
# A side of an equation: short calls, and letters with symbols.
_SIGNS = _SYMBOL.replace(",", "")
_SIDE = rf"(?:(?:{_CALLS}|[a-z])?(?:{_SIGNS}+(?:{_CALLS}|[a-z]))*{_SIGNS}*)"

_SIGN = r"(?:times|multiplied\sby|divided\sby|[*/x\x{d7}÷])"
_AMOUNT = rf"[$€£]?\d[\d,]*(?:\.\d+)?(?:\s?(?:{_MONEY}|€|£))?"
_A_UNIT = (
    r"(?:\s?(?:km|cm|mm|kg|ml|lbs?|oz|ft|kwh|gb|mb|hrs?)|\s[a-z]{3,}(?:\s[a-z]{3,})?)"
    r"(?:\s(?:each|apiece))?"
)
# Words behind a formula that lead to the form of its answer: ", give the answer" as a fraction.
_SAID = (
    r"\s*[,;.]?\s*(?:(?:and\s|then\s|please\s){0,3}(?:give|write|show|express|put|state)\s"
    r"(?:me\s)?(?:(?:it|that|this|your|the)\s?)(?:(?:final\s)?(?:answer|result)\s?)?\s)?"
)
_ROUNDED = (
    r"\s*[,;.]?\s*(?:and\s|then\s|please\s){0,3}(?:(?:give|write|show)\s(?:it|that|the\sanswer)\s)?"
    r"(?:(?:round(?:ed|ing)?|correct)\s)?(?:(?:it|that|the\s(?:answer|result))\s)?(?:off\s)?"
    r"(?:to|with|give(?:\sme)?|showing|using)\s(?P<places>\d{1,2})\s(?:decimals?|decimal\s"
    r"(?:places?|digits?)|places?)"
)
_WRITE = (
    r"^(?:please\s)?(?:(?:write|spell|express|put|say|show|give|convert|turn|change|how\sdo\s"
    r"(?:you|i|we)"
    r"\s(?:write|say|spell)|how\s(?:is|would\syou\s(?:write|say|spell))|what(?:'s|\sis))\s+)?"
    r"(?:me\s)?(?:out\s)?"
    r"(?:the\s)?(?:(?:number|amount|figure|sum|year|value)\s)?"
)
_FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        r"fractions?(?:\s(?:form|in\s(?:its\s)?(?:lowest|simplest)\s(?:terms|form)))?",
        {"form": "fraction"},
    ),
    (r"decimals?(?:\s(?:form|number))?", {}),
    (r"mixed\s(?:numbers?|fractions?|numerals?)(?:\sform)?", {"form": "mixed number"}),
    (r"(?:(?:english\s)?words?|letters)", {"form": "words"}),
    (r"roman\s(?:numerals?|numbers?|figures?)", {"form": "roman"}),
)

# References to earlier answers: the last one, or every number and term.
_IT = r"(?:it|that|this|the\s(?:result|answer))"
_THEM = r"(?:them|those|these|both|all\sof\sthem)(?:\s(?:numbers|results|answers))?"
_TERM = r"[^=\x{2248}]+"
_COMBINED = (
    (rf"(?:add|sum)\s(?:up\s)?{_THEM}(?:\s(?:up|together))?", "(?:sum|total)", ")+("),
    (rf"multiply\s{_THEM}(?:\s(?:up|together))?", "product", ")*("),
)
_LATEST: dict[str, Any] = {"only": _TERM}


def _earlier_answer_rules() -> list[MatchRuleJson]:
    """Return the patterns that combine earlier answers or continue from the last one."""
    declared: list[MatchRuleJson] = [
        {
            "pattern": rf"^(?:(?:please|now|and|then)\s){{0,3}}(?:{spoken}"
            rf"|(?:what(?:'s|\sis)\s)?(?:their|the)\s{noun}(?:\sof\s{_THEM})?)\s*[?.!]?$",
            "arguments": {
                "expression": {"from": "({answers})", "join": join, "least": 2, "only": _TERM}
            },
        }
        for spoken, noun, join in _COMBINED
    ]
    # "what is that times 3", "and that squared"
    declared.append(
        {
            "pattern": rf"^(?:(?:please|now|and|then)\s){{0,3}}(?:(?:what(?:'s|\sis)|how\smuch\sis)"
            rf"\s)?{_IT}\s(?P<rest>(?:times|plus|minus|over|mod|(?:divided|multiplied)\sby|[+"
            rf"\-*/^])"
            rf"\s?{OPERAND}|squared|cubed){_END}",
            "arguments": {"expression": {"from": "({answer}) {rest}", **_LATEST}},
        }
    )
    for verb, word, formula in _SPOKEN:
        for left, right in ((_IT, rf"(?P<right>{OPERAND})"), (rf"(?P<left>{OPERAND})", _IT)):
            taken = formula.replace("{left}" if left is _IT else "{right}", "{answer}")
            declared.append(
                {
                    "pattern": rf"^(?:(?:please|now|and|then)\s){{0,3}}{verb}\s+{left}\s*"
                    rf"{word}\s+{right}{_END}",
                    "arguments": {"expression": {"from": taken, **_LATEST}},
                }
            )
    return declared


def _form_rules() -> list[MatchRuleJson]:
    """Return the patterns of questions that say in what form they want the answer."""
    return [
        *(
            {
                # "what fraction is 0.2"
                "contains": noun,
                "pattern": rf"^(?:what|which)\s{noun}\s(?:is|equals|is\sequal\sto)\s"
                rf"(?P<x>{OPERAND}){_END}",
                "arguments": {"expression": "{x}", **form},
            }
            for noun, form in _FORMS[:2]
        ),
        *(
            {
                "contains": noun,
                "pattern": rf"{_LEAD}(?P<expression>{_FORMULA}){_SAID}\s?(?:as|in|to|into)\s"
                rf"(?:an?\s)?(?:(?:simple|common|(?:im)?proper|exact|reduced)\s)?{noun}{_END}",
                "require": {"expression": _A_DIGIT_OR_A_CALL},
                "arguments": {"expression": "{expression}", **form},
            }
            for noun, form in _FORMS
        ),
        *(
            {
                "contains": noun,
                "pattern": rf"{_WRITE}(?P<x>{OPERAND}){_SAID}(?:out\s)?(?:as|in|to|into|with)"
                rf"\s(?:an?\s)?"
                rf"{noun}{_END}",
                "arguments": {"expression": "{x}", **form},
            }
            for noun, form in _FORMS
            if form
        ),
        {
            "contains": "spell|written|write",
            "pattern": r"^(?:how\s(?:do|would|should|can)\s(?:you|i|we|one)\s(?:spell|write\sout)"
            r"|spell(?:\sout)?|write\sout|how\sis)\s(?:the\s)?(?:(?:number|amount|figure|sum)\s)?"
            rf"(?P<x>\d[\d,]*(?:\.\d+)?)(?:\s(?:spelled|spelt|written))?(?:\sout)?{_END}",
            "arguments": {"expression": "{x}", "form": "words"},
        },
        {
            "contains": "decimal|place",
            "pattern": rf"{_LEAD}(?P<expression>{_FORMULA}){_ROUNDED}{_END}",
            "require": {"expression": _A_DIGIT_OR_A_CALL},
            "exclude": {"expression": r"\b(?:round|floor|ceil)"},
            "arguments": {"expression": "round({expression},{places})"},
        },
        *(
            {
                "contains": "decimal|place",
                "pattern": rf"^(?:please\s)?(?:{_VERB}\s+)?{verb}\s+"
                rf"(?P<left>{OPERAND}){word}\s+(?P<right>{OPERAND}){_ROUNDED}{_END}",
                "arguments": {"expression": f"round({formula},{{places}})"},
            }
            for verb, word, formula in _SPOKEN
        ),
    ]


CALCULATE: list[MatchRuleJson] = [
    *_earlier_answer_rules(),
    *(
        {
            "contains": find_condition(phrase),
            "pattern": rf"{SOME_WORDS}{phrase}{_ASKED_LAST}{_END}",
            "exclude": {
                group: PART_OF_A_FORMULA
                for group in ("before", "label", "things", "more")
                if group == "before" or f"(?P<{group}>" in phrase
            },
            "arguments": write_arguments(formula),
        }
        for phrase, formula in PHRASES
    ),
    *_form_rules(),
    *(
        {
            # "900 minus a third": of 900, or the number 1/3
            "contains": r"\(1/",
            "pattern": rf"{_LEAD}(?P<x>{_FORMULA})\b(?:{word})\s\(1/(?P<under>\d{{1,3}})\)"
            rf"{_EQUALS}{_END}",
            # Of fractions alone, the number is meant.
            "require": {"x": r"(?:^|[^/\d])\d+(?:\.\d+)?\s?(?:$|[^/\d.])"},
            "arguments": {
                "expression": f"({{x}}){sign}1/{{under}}",
                "other_reading": f"({{x}})*(1{sign}1/{{under}})",
            },
        }
        for word, sign in (("minus|less", "-"), ("plus", "+"))
    ),
    *(
        {
            # A result that is used: 40 minus 12.75, then divided by 5
            "contains": r"\bthen\b",
            "pattern": rf"{_LEAD}(?P<expression>{_FORMULA}[\d)%])[,;]?\s(?:and\s)?then\s{word}\s"
            rf"(?P<y>{OPERAND}){_END}",
            "require": {"expression": r"\d"},
            "arguments": {"expression": f"({{expression}}){sign}({{y}})"},
        }
        for word, sign in (
            (r"(?:divided\sby|divide\s(?:it\s|that\s)?by)", "/"),
            (r"(?:times|multiplied\sby|multiply\s(?:it\s|that\s)?by)", "*"),
            ("(?:plus|add)", "+"),
            ("(?:minus|subtract)", "-"),
        )
    ),
    {
        # A variable with a value: "evaluate 2x+1 at x = 9".
        "contains": "=",
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA})[,;]?\s(?:if|when|for|where|with|at|given"
        rf"|and)\s"
        rf"(?P<where>[a-z]\s?(?:=|is|equals)\s?-?\d[\d.]*(?:/\d+)?){_END}",
        "require": {"expression": r"\b\d*[a-z]\b"},
        "arguments": {"expression": "{expression}", "where": "{where}"},
    },
    *(
        {
            "pattern": rf"^(?:please\s)?(?:{_VERB}\s+)?{verb}\s+"
            rf"(?P<left>{OPERAND}){word}\s+(?P<right>{OPERAND}){_END}",
            "arguments": {"expression": formula},
        }
        for verb, word, formula in _SPOKEN
    ),
    {
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA})"
        r"(?:to|with)\s(?P<digits>\d{1,6})\s(?:significant\s)?(?:digits|figures)" + _END,
        "require": {"expression": r"\S"},
        "arguments": {
            "expression": "{expression}",
            "digits": {"from": "{digits}", "type": "integer"},
        },
    },
    *(
        {
            # "turn 0.375 into a fraction", "what is 7/8 as a decimal"
            "pattern": rf"{SOME_WORDS}(?P<x>{OPERAND}(?:%\s?)?)(?:as|in|to|into)\s(?:an?\s)?"
            rf"(?:(?:simple|common|(?:im)?proper|exact|reduced)\s)?{noun}"
            rf"(?:\s(?:form|number|notation))?{_END}",
            "exclude": {"before": PART_OF_A_FORMULA},
            "arguments": {"expression": "{x}", **form},
        }
        for noun, form in (("fractions?", {"form": "fraction"}), ("decimals?", {}))
    ),
    {
        "pattern": rf"{_ASK}(?:(?:simplify|reduce)\s)?(?:the\s)?(?:ratio\s(?:of\s|between\s)?)?"
        rf"(?P<x>\d[\d.]*)\s?(?::|to)\s?(?P<y>\d[\d.]*)"
        rf"(?:\s(?:simplified|in\s(?:its\s)?(?:simplest|lowest)\s(?:form|terms)))?{_END}",
        "require": {"0": r"ratio|simplif|simplest|lowest"},
        "arguments": {"expression": "({x})/({y})", "form": "ratio"},
    },
    {
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA}){_EQUALS}{_END}",
        "require": {"expression": _A_DIGIT_OR_A_CALL},
        "arguments": {"expression": "{expression}"},
    },
    {
        # A unit that only says what is counted: how many hours are 38 * 4
        "contains": r"^how\smany",
        "pattern": rf"^how\smany\s(?P<unit>(?:[a-z]{{2,}}\s){{1,2}})(?:is|are|make|makes)\s"
        rf"(?P<expression>{_FORMULA}){_EQUALS}{_END}",
        "require": {"expression": rf"\d.*{_SIGN}.*\d"},
        "exclude": {
            "unit": rf"{PART_OF_A_FORMULA}|per\s?cent|more|less",
            # Money is converted, and "5 m" is a length.
            "expression": rf"\d\s[a-z]\b|[$€£¥]|\b(?:{_MONEY})",
        },
        "arguments": {"expression": "{expression}"},
    },
    *(
        {
            # A unit beside one of two numbers: 340 km times 0.30
            "contains": rf"\d.*{_SIGN}",
            "pattern": rf"{_LEAD}{left}\s?(?P<sign>{_SIGN})\s?{right}{_EQUALS}{_END}",
            "exclude": {"unit": PART_OF_A_FORMULA, "0": r"per\s?cent|%|\d\s?(?:pi|mod|choose)\b"},
            "arguments": {"expression": "({x}) {sign} ({y})"},
        }
        for left, right in (
            (rf"(?P<x>{_AMOUNT})(?P<unit>{_A_UNIT})", rf"(?P<y>{_AMOUNT})"),
            (rf"(?P<x>{_AMOUNT})", rf"(?P<y>{_AMOUNT})(?P<unit>{_A_UNIT})"),
        )
    ),
    {
        # After `calculate`, text that looks like code matches: the rejection says what is valid.
        "pattern": r"^(?:calculate|compute|evaluate)\s+"
        r"(?P<expression>[^\s()_'\"\[\]{}=\\:+*/^%!]*[()_'\"\[\]{}=\\:+*/^%!][^?]*)" + _END,
        "arguments": {"expression": "{expression}"},
    },
    {
        "pattern": r"^(?:what(?:'s|\sis)\s)?(?P<expression>[^\s(]*\([^\s?]*)" + _END,
        "arguments": {"expression": "{expression}"},
    },
]

_NUMBER = {"number": "{x}"}
_PAIR = {"number": "{x}", "other": "{y}"}
_RELATIONS = (
    (rf"(?:{LARGER}\sthan\sor\sequal\sto|at\sleast|>=|≥)", ">="),
    (rf"(?:{SMALLER}\sthan\sor\sequal\sto|at\smost|<=|≤)", "<="),
    (rf"(?:{LARGER}\sthan|>)", ">"),
    (rf"(?:{SMALLER}\sthan|<)", "<"),
    (r"(?:equal\sto|the\ssame\sas|equals?|=)", "="),
    (r"(?:evenly\s)?(?:divisible\sby|a\smultiple\sof)", "divisible by"),
)
_EVENLY = r"(?:\s(?:evenly|exactly|without\s(?:a\s)?remainder))?"

_DIVISORS = r"(?:any\s)?(?:other\s)?(?:factors?|divisors?)"
_MODAL = r"(?:will|would|can|could|might|may|should)"
_STATEMENTS: list[MatchRuleJson] = [
    {
        "pattern": rf"^are\s{EACH}\sand\s{OTHER}\s(?:co-?\s?prime|(?:relatively"
        rf"|mutually)\sprime){_END}",
        "arguments": {**_PAIR, "relation": "coprime with"},
    },
    {
        "pattern": rf"^is\s{EACH}\s(?:co-?\s?prime|relatively\sprime)\s(?:to|with)\s{OTHER}{_END}",
        "arguments": {**_PAIR, "relation": "coprime with"},
    },
    {
        "pattern": rf"^(?:please\s)?(?:is|are|was|{_MODAL})\s(?:the\s(?:number|year)\s)?{EACH}\s"
        rf"(?:be\s)?(?:an?\s)?"
        r"(?P<relation>prime|even|odd|composite|(?:perfect\s)?(?:square|cube)|leap\syear"
        r"|triangular|triangle|fibonacci|palindrom(?:e|ic))"
        r"(?:\snumbers?)?"
        rf"(?:\sor\s(?:an?\s)?(?:not|odd|even|composite)(?:\snumber)?)?{_END}",
        "arguments": {
            **_NUMBER,
            "relation": {
                "from": "{relation}",
                "map": {
                    "perfect square": "square",
                    "perfect cube": "cube",
                    "triangle": "triangular",
                    "palindromic": "palindrome",
                },
            },
        },
    },
    {
        "pattern": rf"^(?:is|does)\s(?:the\snumber\s)?{EACH}\s(?:(?:in|part\sof|belong\sto)\s)?"
        rf"(?:the\s)?fibonacci\s(?:sequence|series|numbers){_END}",
        "arguments": {**_NUMBER, "relation": "fibonacci"},
    },
    *(
        {
            "pattern": rf"^is\s(?:the\snumber\s)?{EACH}\s(?:a\s)?{sign}(?:\snumber)?{_END}",
            "arguments": {**_NUMBER, "other": "0", "relation": relation},
        }
        for sign, relation in (("positive", ">"), ("negative", "<"))
    ),
    {
        # "does 97 have any factors besides 1 and itself"
        "pattern": rf"^(?:does|do|has|have|are\sthere|is\sthere)\s(?:{_DIVISORS}\sof\s)?{EACH}"
        rf"(?:\s(?:have|got))?(?:\s{_DIVISORS})?"
        rf"\s(?:besides|other\sthan|apart\sfrom|except|but)\s(?:for\s)?1\s(?:and|or)\sitself{_END}",
        "require": {"0": "factor|divisor"},
        "arguments": {**_NUMBER, "relation": "composite"},
    },
    *(
        {
            "pattern": rf"^(?:please\s)?(?:(?:is|are|does|do|{_MODAL})\s|is\sit\strue\sthat\s)"
            rf"(?:the\snumber\s)?{EACH}\s?(?:\b(?:is|be)\s)?{words}\s*{OTHER}{_END}",
            "arguments": {**_PAIR, "relation": relation},
        }
        for words, relation in _RELATIONS
    ),
    # Behind comparisons: "is 2 to the power of 10 more than 1000".
    {
        "pattern": rf"^is\s(?:the\snumber\s)?{EACH}\s(?:an?\s)?(?:perfect\s|exact\s)?power\sof"
        rf"\s{OTHER}{_END}",
        "arguments": {**_PAIR, "relation": "power of"},
    },
    {
        # "is 200 between 100 and 300", "is 7 in the range from 1 to 10"
        "pattern": rf"^(?:is|are|does|do|lies?)\s(?:the\snumber\s)?{EACH}\s(?:(?:lie|fall)\s)?"
        rf"(?:in\s?)?(?:between|(?:with)?in\sthe\srange(?:\s(?:of|from|between))?)\s{OTHER}"
        rf"\s(?:and|to)\s(?P<end>[^?]*?\d[^?]*?){_END}",
        "exclude": {"0": r"\d{4}-\d{1,2}-\d{1,2}|--\d"},
        "arguments": {**_PAIR, "second": "{end}", "relation": "between"},
    },
    {
        "pattern": rf"^(?:are|do)\s{EACH}\sand\s{OTHER}\s(?:equal|the\ssame){_END}",
        "arguments": {**_PAIR, "relation": "="},
    },
    {
        "pattern": rf"^(?P<x>\d+)\s(?:is\s)?(?:an?\s)?(?P<relation>prime|even|odd)"
        rf"(?:\snumber)?{_END}",
        "arguments": {**_NUMBER, "relation": "{relation}"},
    },
    {
        "pattern": rf"^is\s{EACH}\sa\s(?:factor|divisor)\sof\s{OTHER}{_END}",
        "arguments": {"number": "{y}", "other": "{x}", "relation": "divisible by"},
    },
    {
        "pattern": rf"^(?:does|do|{_MODAL})\s{EACH}\s(?:evenly\s)?(?:divide|go|fit)(?:\s(?:in"
        rf"|into))?\s"
        rf"{OTHER}{_EVENLY}{_END}",
        "arguments": {"number": "{y}", "other": "{x}", "relation": "divisible by"},
    },
    {
        "pattern": rf"^{_MODAL}\s{EACH}\s(?:be\s)?(?:(?:evenly|equally)\s)?(?:divided|split|shared)"
        rf"\s(?:(?:evenly|equally)\s)?(?:into|in|between|among)\s{OTHER}(?:\s(?:parts|ways"
        rf"|people))?"
        rf"{_EVENLY}{_END}",
        "arguments": {**_PAIR, "relation": "divisible by"},
    },
    {
        # "can you divide 126 by 9 evenly" without its polite words
        "pattern": rf"^divide\s{EACH}\s(?:evenly\s)?by\s{OTHER}{_EVENLY}{_END}",
        "require": {"0": "evenly|exactly|without"},
        "arguments": {**_PAIR, "relation": "divisible by"},
    },
    {
        "pattern": rf"^is\s(?:the\snumber\s)?{EACH}\s(?:an\sinteger|a\swhole\snumber){_END}",
        "arguments": {**_NUMBER, "relation": "integer"},
    },
    {
        "pattern": rf"^{_MODAL}\s(?:(?:you|i|we)\sdivide\s)?{EACH}\s(?:be\s)?(?:evenly\s)?"
        rf"(?:divided\s)?(?:evenly\s)?by"
        rf"\s{OTHER}{_EVENLY}{_END}",
        "arguments": {**_PAIR, "relation": "divisible by"},
    },
]
# Numbers in words are checked when they are in digits.
CHECK: list[MatchRuleJson] = [
    {
        **rule,
        "exclude": {
            **rule.get("exclude", {}),
            **{
                group: NUMERALS for group in ("x", "y", "end") if f"(?P<{group}>" in rule["pattern"]
            },
        },
    }
    for rule in _STATEMENTS
]

_FACTORED = {"expression": "{expression}"}
FACTOR: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:please\s)?factor(?:i[sz]e)?(?:\sout)?\s+(?:the\s(?:number|expression"
        r"|polynomial)\s)?"
        r"(?P<expression>[^?]+?)(?:\s(?:into|as|in)\s(?:a\sproduct\sof\s)?(?:its\s)?(?:prime\s)?"
        r"(?:primes?|factors|numbers))?" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        "pattern": _ASK + r"(?:prime\s)?(?:factors|factori[sz]ation|divisors|decomposition)\sof\s+"
        r"(?:the\snumber\s)?(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        "pattern": r"^(?:write|express|split|break|decompose)\s+(?:(?:up|down)\s)?"
        r"(?P<expression>[^?]+?)\s(?:(?:up|down)\s)?(?:as|into)\s(?:a\sproduct\sof\s)?(?:its\s)?"
        r"(?:prime\s)?(?:primes|factors)" + _END,
        "arguments": _FACTORED,
    },
    {
        # "write x^2-1 as a product", "what is x^2-1 in factored form"
        "pattern": r"^(?:(?:write|express|put|give|show|rewrite|what(?:'s|\sis))\s+)?"
        r"(?P<expression>[^?]+?)\s(?:as|in|into)\s(?:an?\s)?(?:product|(?:fully\s)?factored\sform"
        r"|(?:fully\s)?factori[sz]ed\sform)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        "pattern": _ASK + r"(?:factored|factori[sz]ed)\sform\sof\s+(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
]

EXPAND: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:please\s)?(?:expand|multiply\sout|distribute)(?:\sand\ssimplify)?\s+"
        r"(?:(?:the\s)?(?:following\s)?(?:expression|product|brackets?|parenthes[ei]s)\s?:?\s)?"
        r"(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        # Of expressions with variables, multiplied by each other.
        "pattern": r"^multiply\s(?P<x>[^?]*?)\s(?:by|with|and)\s(?P<y>[^?]+)" + _END,
        "require": {
            "0": r"\b\d*[a-z]\s?[-+^)]|[-+(]\s?\d*[a-z]\b",
            "x": _A_FORMULA,
            "y": _A_FORMULA,
        },
        "arguments": {"expression": "({x})*({y})"},
    },
    {
        "pattern": r"^(?:remove|open|multiply\sout|resolve|get\srid\sof)\s(?:the\s)?"
        r"(?:brackets|parenthes[ei]s)\s(?:in|of|from)\s+(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        "pattern": r"^(?:(?:write|express|put|give|show|rewrite|what(?:'s|\sis))\s+)?"
        r"(?P<expression>[^?]+?)\swithout\s(?:the\s|any\s)?(?:brackets|parenthes[ei]s)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        "pattern": _ASK + r"expanded\sform\sof\s+(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
    {
        "pattern": r"^(?:(?:write|express|put|give|show|rewrite|what(?:'s|\sis))\s+)?"
        r"(?P<expression>[^?]+?)\s(?:in|into)\s(?:an?\s)?expanded\sform" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
]

_THE_EQUATION = (
    r"(?:(?:the|this|following)\s){0,2}(?:(?:linear|quadratic|cubic|simple)\s)?(?:equation\s?:?\s)?"
)
SOLVE: list[MatchRuleJson] = [
    {
        "pattern": rf"^(?:please\s)?solve\s+{_THE_EQUATION}(?P<equation>[^?]+?)\sfor"
        rf"\s(?P<variable>[a-z])" + _END,
        "require": {"equation": _A_FORMULA},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^(?:please\s)?solve\s+(?:for\s(?P<variable>[a-z])\s?[:,]?\s)?"
        rf"{_THE_EQUATION}"
        r"(?P<equation>[^?]+)" + _END,
        "require": {"equation": _A_FORMULA_OR_A_LETTER},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": _ASK + r"(?:roots|zeros|solutions?)\sof\s+(?P<equation>[^?]+)" + _END,
        "require": {"equation": _A_FORMULA_OR_A_LETTER},
        "arguments": {"equation": "{equation}"},
    },
    {
        "pattern": r"^(?:(?:what(?:'s|\sis)|find|get)\s(?:the\svalue\sof\s)?(?P<variable>[a-z])\s"
        r"(?:if|when|where|for|in|given|such\sthat)\s)?"
        rf"(?P<equation>{_SIDE}={_SIDE}){_END}",
        "require": {"equation": r".=\s*[^\s?]"},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": rf"^(?:if|when|given)?\s*(?P<equation>{_SIDE}={_SIDE})[,;.]?\s+"
        r"(?:then\s)?(?:what(?:'s|\sis)|find|solve\sfor)\s(?:the\svalue\sof\s)?(?P<variable>[a-z])"
        + _END,
        "require": {"equation": r".=\s*[^\s?]"},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        # "x squared equals 49, what is x"
        "contains": "equal",
        "pattern": r"^(?:if|when|given)?\s*"
        r"(?P<equation>[^,;?]{1,80}?\sequals?\s(?:to\s)?[^,;?]{1,80}?)"
        r"[,;.]?\s(?:then\s)?(?:what(?:'s|\sis)|find|solve\sfor)\s(?:the\svalue\sof\s)?"
        r"(?P<variable>[a-z])" + _END,
        "require": {"equation": r"\b\d*[a-z]\b"},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^(?:(?:what|which|find)\s(?:is\s)?(?:the\s)?values?\sof\s)"
        r"(?P<variable>[a-z])\s"
        rf"(?:(?:satisf(?:y|ies)|solves?|makes?|if|when|where|for)\s)?"
        rf"(?P<equation>{_SIDE}={_SIDE})(?:\strue)?{_END}",
        "require": {"equation": r".=\s*[^\s?]"},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^for\s(?:what|which)\s(?:values?\sof\s)?(?P<variable>[a-z])\s(?:is|does)\s"
        rf"(?P<equation>{_SIDE}(?:=|equals?(?:\sto)?){_SIDE}){_END}",
        "require": {"equation": r".(?:=|\bequals?(?:\sto)?)\s*[^\s?]"},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
]

_ORDER = {
    "from": "{order}",
    "map": {"first": 1, "second": 2, "third": 3, "fourth": 4},
    "type": "integer",
    "default": 1,
}
_DERIVED = {"expression": "{expression}", "variable": "{variable}"}
_DERIVATIVE_OF = _ASK + r"(?:(?P<order>first|second|third|fourth)\s)?derivative\sof\s+"
_VERB_D = r"^(?:please\s)?(?:differentiate|derive)\s+"

DIFFERENTIATE: list[MatchRuleJson] = [
    {
        "pattern": f"{lead}{body}{_END}",
        "require": {"expression": formula},
        "arguments": {**_DERIVED, **more},
    }
    for lead, more in ((_DERIVATIVE_OF, {"order": _ORDER}), (_VERB_D, {}))
    for body, formula in (
        (rf"(?P<expression>[^?]+?){_BY}", _A_FORMULA),
        (r"(?P<expression>[^?]+)", _A_FORMULA_OR_A_LETTER),
    )
] + [
    {
        "pattern": r"^(?:what\sis\s)?d/d(?P<variable>[a-z])\s?(?P<expression>[^?\s][^?]*)" + _END,
        "arguments": _DERIVED,
    }
]

_INTEGRAL = (
    r"^(?:please\s)?(?:(?:what(?:'s|\sis)|find|calculate|compute|give\sme)\s+)?(?:the\s)?"
    r"(?:(?:definite\s|indefinite\s)?integral\sof|antiderivative\sof|integrate"
    r"|area\s(?:under|below)(?:\sthe\s(?:curve|graph)(?:\sof)?)?)\s+(?:the\sfunction\s)?"
    r"(?:y\s?=\s?)?"
)

INTEGRATE: list[MatchRuleJson] = [
    {
        "pattern": _INTEGRAL + r"(?P<expression>[^?]+?)(?:\sd(?P<variable>[a-z]))?"
        r"\s(?:from|between)\s(?P<lower>[^?]+?)\s(?:to|and)\s(?P<upper>[^?]+)" + _END,
        "require": {"0": _A_FORMULA},
        "arguments": {**_DERIVED, "lower": "{lower}", "upper": "{upper}"},
    },
    {
        "pattern": _INTEGRAL
        + r"(?P<expression>[^?]+?)\s(?:(?:with\srespect\sto|wrt|by)\s|d)(?P<variable>[a-z])"
        + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _DERIVED,
    },
    {
        "pattern": _INTEGRAL + r"(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA_OR_A_LETTER},
        "arguments": {"expression": "{expression}"},
    },
]
