"""The questions that each math tool answers: patterns that the `rules` model reads from `_meta`.

They are in RE2's syntax, which has no lookahead: `require` says what else a text has to contain.
"""

from typing import Any

from trunkline_agents.math.parser import CONSTANTS, FUNCTIONS
from trunkline_agents.math.wording import MONEY_WORDS, SPELLINGS
from trunkline_agents.mcp_server import MatchRuleJson

_WORDS = sorted(
    {
        *FUNCTIONS,
        *(name for name in CONSTANTS if len(name) > 1),
        *("arcsin", "arccos", "arctan", "ceiling"),
        *(word for phrase in SPELLINGS for word in phrase.split()),
        *("of", "off", "and", "base", "to", "the", "power", "st", "nd", "rd", "th"),
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
    r"|simplify(?:ing)?|find|get|give\sme)"
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
_EQUALS = r"(?:\s*(?:=|equals?(?:\sto)?|makes?|come\sto|is))?"
_ASK = r"^(?:please\s)?(?:(?:what(?:'s|\sis|\sare)|find|calculate|compute|give\sme)\s+)?(?:the\s)?"
_BY = r"\s(?:with\srespect\sto|wrt|by)\s(?P<variable>[a-z])"

_OPERAND = rf"[\d.,\s+\-*/^()$€£¥]+(?:\b(?:{_MONEY}))?"
_PERCENT = r"\s?(?:%|per\s?cent)"
# A verb, the word between its operands, and the formula of the phrase.
_SPOKEN = (
    (r"multiply(?:ing)?", r"(?:by|with|and)", "({left})*({right})"),
    (r"divid(?:e|ing)", "by", "({left})/({right})"),
    (r"add(?:ing)?", r"(?:and|to|plus)", "({left})+({right})"),
    (r"(?:subtract|deduct|take)(?:ing)?", r"(?:away\s|off\s)?from", "({right})-({left})"),
)
_X = rf"(?P<x>{_OPERAND})"
_Y = rf"(?P<y>{_OPERAND})"
_P = (
    rf"(?P<p>\d[\d.]*){_PERCENT}"
    r"(?:\s(?:tax|vat|gst|tip|discount|surcharge|interest|commission|fee|markup))?"
)
_MORE = r"(?:rais(?:e|ing)|increas(?:e|ing)|grow)"
_LESS = r"(?:decreas(?:e|ing)|reduc(?:e|ing)|lower(?:ing)?|cut(?:ting)?|discount(?:ing)?)"
_SHARE = r"(?:percent(?:age)?|per\scent)"
_LARGER = r"(?:bigger|larger|greater|higher|more)"
_SMALLER = r"(?:smaller|less|lower|fewer)"
_LIST = r"[\d.]+(?:,\s+[\d.]+)+(?:,?\s+and\s+[\d.]+)?"
_EACH = r"(?P<x>[^?,;]*?(?:\d|\bpi\b)[^?,;]*?)"
_OTHER = r"(?P<y>[^?]*?(?:\d|\bpi\b)[^?]*?)"
# Words such as "what is the". A letter alone is a variable.
_SOME_WORDS = r"^(?:(?:[a-z'][a-z']+|i)\s+)*?"
# Phrases with operands, after such words, and their formulas. A phrase is before those that match a
# part of it.
_PHRASES: tuple[tuple[str, str], ...] = (
    (rf"{_MORE}\s+{_X}\sby\s+{_P}", "({x})*(1+({p})/100)"),
    (rf"{_LESS}\s+{_X}\sby\s+{_P}", "({x})*(1-({p})/100)"),
    (rf"{_MORE}\s+{_X}\sby\s+{_Y}", "({x})+({y})"),
    (rf"{_LESS}\s+{_X}\sby\s+{_Y}", "({x})-({y})"),
    (rf"add(?:ing)?\s+{_P}\sto\s+{_X}", "({x})*(1+({p})/100)"),
    (
        rf"(?:subtract|deduct|take)(?:ing)?\s+{_P}\s(?:away\s)?(?:from|off)\s+{_X}",
        "({x})*(1-({p})/100)",
    ),
    (
        rf"save\s(?:with|at|on|by|if|when)?\s*(?:i\sget\s)?{_P}\s(?:off|discount\son)\s+{_X}",
        "({p})/100*({x})",
    ),
    (rf"{_P}\soff\s(?:of\s)?{_X}", "({x})*(1-({p})/100)"),
    (
        rf"{_SHARE}\s(?:change|increase|decrease|difference)\s(?:from|between)\s+{_X}\s(?:to"
        rf"|and)\s+{_Y}",
        "(({y})-({x}))/({x})*100",
    ),
    (rf"(?:add|sum)(?:ing)?(?:\sup|\stogether)?\s+(?P<x>{_LIST})", "sum of {x}"),
    (rf"{_X}\s(?:plus|and|with)\s+(?:an?\s(?:extra|additional)\s)?{_P}", "({x})*(1+({p})/100)"),
    (rf"{_X}\s(?:minus|less|without)\s+{_P}", "({x})*(1-({p})/100)"),
    (rf"{_P}\s(?:more|higher|larger)\sthan\s+{_X}", "({x})*(1+({p})/100)"),
    (rf"{_P}\s(?:less|lower|smaller)\sthan\s+{_X}", "({x})*(1-({p})/100)"),
    (rf"(?:an?\s)?{_P}\s(?:[a-z]+\s)?(?:on|for)\s+(?:a\sbill\sof\s)?{_X}", "({p})/100*({x})"),
    (rf"(?:an?\s)?{_P}\sdiscount\s(?:on|of|off)\s+{_X}", "({p})/100*({x})"),
    (rf"(?:what\s)?{_SHARE}\sof\s+{_X}\s(?:is|are)\s+{_Y}", "({y})/({x})*100"),
    (rf"{_X}\s(?:is|are|as)\s(?:what|which|a)\s{_SHARE}\sof\s+{_Y}", "({x})/({y})*100"),
    (rf"(?:what\s)?{_SHARE}\s(?:is|are)\s+{_X}\s(?:out\s)?of\s+{_Y}", "({x})/({y})*100"),
    (rf"{_X}\s(?:reduced|decreased|lowered|discounted|cut)\sby\s+{_P}", "({x})*(1-({p})/100)"),
    (rf"{_X}\s(?:increased|raised|marked\sup)\sby\s+{_P}", "({x})*(1+({p})/100)"),
    (
        rf"{_X}\s(?:after|with)\s(?:an?\s)?(?P<p>\d[\d.]*){_PERCENT}\s(?:discount|off|reduction)",
        "({x})*(1-({p})/100)",
    ),
    (rf"{_X}\sas\s(?:a\s)?(?:fraction|share|part|proportion)\sof\s+{_Y}", "({x})/({y})"),
    (rf"{_X}\s(?:more|higher|greater|larger)\sthan\s+{_Y}", "({y})+({x})"),
    (rf"{_X}\s(?:less|lower|smaller|fewer)\sthan\s+{_Y}", "({y})-({x})"),
    (
        rf"how\smuch\s(?:more|bigger|larger|less|smaller)\sis\s+{_X}\sthan\s+{_Y}",
        "abs(({x})-({y}))",
    ),
    (
        rf"sum\sof\s(?:all\s)?(?:the\s)?first\s+{_X}\s(?:whole\s|natural\s|positive\s)?"
        rf"(?:numbers|integers)",
        "({x})*(({x})+1)/2",
    ),
    (rf"difference\s(?:between|of)\s+{_X}\s(?:and|to)\s+{_Y}", "abs(({x})-({y}))"),
    (
        rf"how\s(?:many\stimes|often)\s(?:does|do|will|can)\s+{_X}\s(?:go|fit)\s(?:in|into)\s+{_Y}",
        "({y})/({x})",
    ),
    (
        rf"remainder\s(?:of|when|if)\s(?:dividing\s)?(?:you\sdivide\s)?{_X}\s(?:is\s)?(?:divided"
        rf"\s)?by\s+{_Y}",
        "mod({x},{y})",
    ),
    (rf"remainder\s(?:of|when|if)\s{_X}\s(?:/|over)\s+{_Y}", "mod({x},{y})"),
    (
        rf"round(?:ing|ed)?\s+(?P<x>{_OPERAND})(?:off\s)?to\s+(?P<y>\d{{1,3}})(?:\sdecimals?|"
        rf"\splaces?|\sdigits?|\sfigures?)+",
        "round({x},{y})",
    ),
    (
        rf"round(?:ing|ed)?\s+(?:off\s)?{_X}(?:\sto\sthe\snearest\s(?:whole\snumber|whole"
        rf"|integer|one))?",
        "round({x})",
    ),
    (rf"round(?:ing|ed)?\s+(?:off\s)?{_X}\sto\sthe\snearest\s(?:ten|10)", "round({x},-1)"),
    (rf"round(?:ing|ed)?\s+(?:off\s)?{_X}\sto\sthe\snearest\s(?:hundred|100)", "round({x},-2)"),
    (rf"square\sof\s+{_X}", "({x})^2"),
    (rf"cube\sof\s+{_X}", "({x})^3"),
    (
        rf"(?:(?:what|which)(?:\sone|\snumber)?(?:'s|\sis)\s)?(?:the\s)?(?:{_LARGER}|biggest"
        rf"|largest|greatest)\s?[,:]?\s+{_EACH}\sor\s+{_OTHER}",
        "max({x},{y})",
    ),
    (
        rf"(?:(?:what|which)(?:\sone|\snumber)?(?:'s|\sis)\s)?(?:the\s)?(?:{_SMALLER}|smallest"
        rf"|lowest|least)\s?[,:]?\s+{_EACH}\sor\s+{_OTHER}",
        "min({x},{y})",
    ),
    (
        rf"sum\sof\s(?:all\s)?(?:the\s)?(?:whole\s)?(?:numbers|integers)\s(?:from|between)"
        rf"\s+{_X}\s(?:to|and|through)\s+{_Y}",
        "(({x})+({y}))*(({y})-({x})+1)/2",
    ),
    (r"(?P<n>\d{1,3})(?:st|nd|rd|th)\sroot\sof\s+(?P<x>[\d.,\s+\-*/^()]+)", "root({x},{n})"),
)

# A side of an equation: short calls, and letters with symbols.
_SIGNS = _SYMBOL.replace(",", "")
_SIDE = rf"(?:(?:{_CALLS}|[a-z])?(?:{_SIGNS}+(?:{_CALLS}|[a-z]))*{_SIGNS}*)"

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
    for verb, word, formula in _SPOKEN:
        for left, right in ((_IT, rf"(?P<right>{_OPERAND})"), (rf"(?P<left>{_OPERAND})", _IT)):
            taken = formula.replace("{left}" if left is _IT else "{right}", "{answer}")
            declared.append(
                {
                    "pattern": rf"^(?:(?:please|now|and|then)\s){{0,3}}{verb}\s+{left}\s*"
                    rf"{word}\s+{right}{_END}",
                    "arguments": {"expression": {"from": taken, **_LATEST}},
                }
            )
    return declared


CALCULATE: list[MatchRuleJson] = [
    *_earlier_answer_rules(),
    *(
        {
            "pattern": rf"{_SOME_WORDS}{phrase}{_END}",
            "arguments": {"expression": formula},
        }
        for phrase, formula in _PHRASES
    ),
    *(
        {
            "pattern": rf"^(?:please\s)?(?:{_VERB}\s+)?{verb}\s+"
            rf"(?P<left>{_OPERAND}){word}\s+(?P<right>{_OPERAND}){_END}",
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
    {
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA}){_EQUALS}{_END}",
        "require": {"expression": _A_DIGIT_OR_A_CALL},
        "arguments": {"expression": "{expression}"},
    },
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
    (rf"(?:{_LARGER}\sthan\sor\sequal\sto|at\sleast|>=|≥)", ">="),
    (rf"(?:{_SMALLER}\sthan\sor\sequal\sto|at\smost|<=|≤)", "<="),
    (rf"(?:{_LARGER}\sthan|>)", ">"),
    (rf"(?:{_SMALLER}\sthan|<)", "<"),
    (r"(?:equal\sto|the\ssame\sas|equals?|=)", "="),
    (r"(?:evenly\s)?(?:divisible\sby|a\smultiple\sof)", "divisible by"),
)
_EVENLY = r"(?:\s(?:evenly|exactly|without\s(?:a\s)?remainder))?"

CHECK: list[MatchRuleJson] = [
    {
        "pattern": rf"^(?:please\s)?(?:is|are)\s(?:the\snumber\s)?{_EACH}\s(?:an?\s)?"
        r"(?P<relation>prime|even|odd|(?:perfect\s)?square)(?:\snumbers?)?"
        rf"(?:\sor\s(?:an?\s)?(?:not|odd|even|composite)(?:\snumber)?)?{_END}",
        "arguments": {
            **_NUMBER,
            "relation": {"from": "{relation}", "map": {"perfect square": "square"}},
        },
    },
    *(
        {
            "pattern": rf"^(?:please\s)?(?:(?:is|are|does|do)\s|is\sit\strue\sthat\s)"
            rf"(?:the\snumber\s)?{_EACH}\s?(?:\bis\s)?{words}\s*{_OTHER}{_END}",
            "arguments": {**_PAIR, "relation": relation},
        }
        for words, relation in _RELATIONS
    ),
    {
        "pattern": rf"^(?:are|do)\s{_EACH}\sand\s{_OTHER}\s(?:equal|the\ssame){_END}",
        "arguments": {**_PAIR, "relation": "="},
    },
    {
        "pattern": rf"^is\s{_EACH}\sa\s(?:factor|divisor)\sof\s{_OTHER}{_END}",
        "arguments": {"number": "{y}", "other": "{x}", "relation": "divisible by"},
    },
    {
        "pattern": rf"^(?:does|do|will|can)\s{_EACH}\s(?:evenly\s)?(?:divide|go|fit)(?:\s(?:in"
        rf"|into))?\s"
        rf"{_OTHER}{_EVENLY}{_END}",
        "arguments": {"number": "{y}", "other": "{x}", "relation": "divisible by"},
    },
    {
        "pattern": rf"^can\s(?:you\sdivide\s)?{_EACH}\s(?:be\s)?(?:evenly\s)?(?:divided\s)?by"
        rf"\s{_OTHER}{_EVENLY}{_END}",
        "arguments": {**_PAIR, "relation": "divisible by"},
    },
]

_FACTORED = {"expression": "{expression}"}
FACTOR: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:please\s)?factor(?:i[sz]e)?(?:\sout)?\s+(?:the\s(?:number|expression"
        r"|polynomial)\s)?"
        r"(?P<expression>[^?]+)" + _END,
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
        "pattern": r"^(?:write|express|split|break)\s+(?P<expression>[^?]+?)\s(?:as|into)\s"
        r"(?:a\sproduct\sof\s)?(?:its\s)?(?:prime\s)?(?:primes|factors)" + _END,
        "arguments": _FACTORED,
    },
]

EXPAND: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:please\s)?(?:expand|multiply\sout|distribute)\s+"
        r"(?:the\s(?:expression|product)\s)?(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _FACTORED,
    },
]

SOLVE: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:please\s)?solve\s+(?P<equation>[^?]+?)\sfor\s(?P<variable>[a-z])" + _END,
        "require": {"equation": _A_FORMULA},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^(?:please\s)?solve\s+(?:for\s(?P<variable>[a-z])\s?[:,]?\s)?"
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
        "require": {"equation": ".=."},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": rf"^(?:if|when|given)?\s*(?P<equation>{_SIDE}={_SIDE})[,;.]?\s+"
        r"(?:then\s)?(?:what(?:'s|\sis)|find|solve\sfor)\s(?:the\svalue\sof\s)?(?P<variable>[a-z])"
        + _END,
        "require": {"equation": ".=."},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^(?:(?:what|which|find)\s(?:is\s)?(?:the\s)?values?\sof\s)"
        r"(?P<variable>[a-z])\s"
        rf"(?:(?:satisf(?:y|ies)|solves?|makes?|if|when|where|for)\s)?"
        rf"(?P<equation>{_SIDE}={_SIDE})(?:\strue)?{_END}",
        "require": {"equation": ".=."},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^for\s(?:what|which)\s(?:values?\sof\s)?(?P<variable>[a-z])\s(?:is|does)\s"
        rf"(?P<equation>{_SIDE}(?:=|equals?(?:\sto)?){_SIDE}){_END}",
        "require": {"equation": ".=."},
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
