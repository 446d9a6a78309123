"""Phrases with one operand or two, and their formulas: "what percent of 80 is 20".

Fragments of patterns in RE2's syntax. `patterns` makes declarations of them.
"""

import re

from trunkline_agents.math.word_problems import SHAPES, WORD_PROBLEMS
from trunkline_agents.math.wording import MONEY_WORDS

_MONEY = "|".join(MONEY_WORDS)
OPERAND = rf"[\d.,\s+\-*/^()$€£¥]+(?:\b(?:{_MONEY}))?"
_PERCENT = r"\s?(?:%|per\s?cent)"
_X = rf"(?P<x>{OPERAND})"
_Y = rf"(?P<y>{OPERAND})"
_P = (
    rf"(?P<p>\d[\d.]*){_PERCENT}"
    r"(?:\s(?:(?:sales|service|income|import|value\sadded)\s)?(?:tax|vat|gst|tip|discount"
    r"|surcharge|interest|commission|fee|markup))?"
)
_MORE = r"(?:rais(?:e|ing)|increas(?:e|ing)|grow)"
_LESS = r"(?:decreas(?:e|ing)|reduc(?:e|ing)|lower(?:ing)?|cut(?:ting)?|discount(?:ing)?)"
_SHARE = r"(?:%|percent(?:age)?|per\scent)"
_CHANGE = (
    r"(?:change|increase|decrease|difference|rise|drop|growth|gain|loss|fall|reduction|markup)"
)
# The words that a phrase begins with: "area", "(?:circumference|perimeter)".
_OPENING_WORDS = re.compile(r"(?:([a-z]{3,})|\(\?:([a-z]{3,}(?:\|[a-z]{3,})*)\))(?![?*{])")
LARGER = r"(?:bigger|larger|greater|higher|more)"
SMALLER = r"(?:smaller|less|lower|fewer)"
_ITEM = r"\d[\d.]*(?:,\d{3})*(?:\.\d+)?"
_LIST = rf"{_ITEM}(?:(?:,\s+|,?\s+and\s+|,?\s+plus\s+){_ITEM})+"
EACH = r"(?P<x>[^?,;]*?(?:\d|\bpi\b)[^?,;]*?)"
OTHER = r"(?P<y>[^?]*?(?:\d|\bpi\b)[^?]*?)"
# Words such as "what is the". A letter alone is a variable.
SOME_WORDS = r"^(?P<before>(?:(?:[a-z'][a-z']+|i|an?\s[a-z]{2,})\s+)*?(?:an?\s+)?)"
_WORDS_OF_NUMBERS = (
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[a-z]+teen|[a-z]+ty|hundred"
    r"|thousand|[a-z]*illion|dozen|half|third|quarter|double|triple|twice"
)
_OPERATORS = (
    r"plus|minus|times|over|divided|multiplied|factorial|squared|cubed|root|power|point|mod"
)
# Before "and", such a word asks for another number: "the square and the cube of 4".
_NAMES = (
    r"(?:square|cube|sum|product|difference|quotient|half|double|average|mean|median|roots?|total)"
)
NUMERALS = rf"\b(?:{_WORDS_OF_NUMBERS})s?\b"
PART_OF_A_FORMULA = (
    rf"\b(?:{_WORDS_OF_NUMBERS}|{_OPERATORS}|sqrt|sine?|cos(?:ine)?|tan(?:gent)?|log|not"
    rf"|{_NAMES}\sand|both"
    r"|[a-z]+n't|without|save|saves|saved|saving|savings|discount|increase|decrease|markup)\b"
)
"""Words that make a phrase a part of a longer formula if they are before it or among its words."""
# A number alone, and words behind it that say what is counted: "60 dollar jacket".
_N = rf"(?P<x>[$€£¥]?\d(?:[\d.,]*\d)?(?:\s?(?:{_MONEY}|€|£|\$)\b)?)"
_M = rf"(?P<y>[$€£¥]?\d(?:[\d.,]*\d)?(?:\s?(?:{_MONEY}|€|£|\$)\b)?)"
_THINGS = r"(?P<things>(?:\s[a-z]{3,}){0,2})"
_A = r"(?:(?:an?|the|my|our|this|that|some|its)\s)?"
_OTHER_THINGS = _THINGS.replace("things", "more")
_LABEL = r"(?P<label>(?:[a-z]+\s){0,2}?(?:of\s|for\s|worth\s|costing\s|at\s)?)"
# The question behind a statement: "what do I pay", "how much is it then".
_TO_PAY = (
    r"(?:[,;.]?\s(?:then\s)?(?:what|how\smuch)"
    r"(?:'s|\s(?:is|are|do|does|did|will|would|should|must))"
    r"(?:\s(?:i|we|you|it|that|the|its|my|final|new|sale|reduced|discounted|total|price|cost"
    r"|costs|pay"
    r"|be|to|have|need|left|then|now|(?:new|final|reduced|total)\s[a-z]+))+)?"
)
_LOWEST = (
    r"(?:\s(?:in|to|into)\s(?:its\s|the\s)?(?:lowest|simplest|smallest)\s(?:possible\s)?"
    r"(?:terms|form|fraction))?"
)
_BEFORE_TAX = (
    r"[,;.]?\s(?:so\s|and\s)?(?:what|how\smuch)(?:'s|\s(?:is|was|would|are|of))[a-z\s]{0,40}?"
    r"(?:without|before|net|excluding|less)(?:\s(?:it|that|the|price|amount|tax|vat|sum|value|of))*"
)
# A value, and what became of it: "it was 80 and now it is 60".
_WAS = r"(?:was|were|cost|had|paid|used\sto\sbe|used\sto\scost)\s"
_AND_NOW = (
    r"[,;.]?\s(?:and\s|but\s)?(?:(?:now|today|then|later|it|they|i|is|are|was|were|costs?|has|have"
    r"|fell\sto|rose\sto|became|at)\s){1,4}"
)
# What is done with a result, said behind it.
_AFTERWARDS = (
    *(("doubled", "*2"), ("tripled", "*3"), ("halved", "/2"), ("squared", "^2"), ("cubed", "^3")),
    (r"divided\sby\s(?P<z>\d[\d.]*)", "/{z}"),
    (r"(?:times|multiplied\sby)\s(?P<z>\d[\d.]*)", "*{z}"),
)
# Phrases with operands, after such words, and their formulas. A phrase is before those that match a
# part of it.
PHRASES: tuple[tuple[str, str], ...] = (
    *SHAPES,
    *WORD_PROBLEMS,
    *(
        (
            rf"{verb}\s+{_X}\sby\s(?:(?:an?\s)?{word}|\({over}/{under}\))",
            f"({{x}})*(1{sign}{over}/{under})",
        )
        for verb, sign in ((_MORE, "+"), (_LESS, "-"))
        for word, over, under in (("half", 1, 2), ("third", 1, 3), ("quarter", 1, 4))
    ),
    *(
        (
            rf"{_N}{_THINGS},?\s(?:is\s|was\s)?{verb}\sby\s(?:(?:an?\s)?{word}|\({over}/{under}\))",
            f"({{x}})*(1{sign}{over}/{under})",
        )
        for verb, sign in (
            ("(?:increased|raised)", "+"),
            ("(?:reduced|decreased|lowered|cut|discounted)", "-"),
        )
        for word, over, under in (("half", 1, 2), ("third", 1, 3), ("quarter", 1, 4))
    ),
    *(
        (
            rf"(?:how\smany|how\smuch|by\swhat|what|which)\s{_SHARE}\s{compared}\sthan\s{_Y}",
            formula,
        )
        for order, formula in (
            (LARGER, "(({x})-({y}))/({y})*100"),
            (SMALLER, "(({y})-({x}))/({y})*100"),
        )
        for compared in (rf"{order}\sis\s{_X}", rf"is\s{_X}\s{order}")
    ),
    (rf"{_MORE}\s+{_X}\sby\s+{_P}", "({x})*(1+({p})%)"),
    (rf"{_LESS}\s+{_X}\sby\s+{_P}", "({x})*(1-({p})%)"),
    (rf"{_MORE}\s+{_X}\sby\s+{_Y}", "({x})+({y})"),
    (rf"{_LESS}\s+{_X}\sby\s+{_Y}", "({x})-({y})"),
    (rf"add(?:ing)?\s+{_P}\sto\s+{_X}", "({x})*(1+({p})%)"),
    (
        rf"(?:subtract|deduct|take)(?:ing)?\s+{_P}\s(?:away\s)?(?:from|off)\s+{_X}",
        "({x})*(1-({p})%)",
    ),
    (
        rf"save\s(?:with|at|on|by|if|when)?\s*(?:i\sget\s)?{_P}\s(?:off|discount\son)\s+{_X}",
        "({p})%*({x})",
    ),
    (
        rf"save\s[a-z\s]*?{_N}{_THINGS}[,;]?\s(?:at|with|if|when|after|and)\s[a-z\s]*?"
        rf"(?P<p>\d[\d.]*){_PERCENT}(?:\s(?:off|discount|reduction|less))?",
        "({p})%*({x})",
    ),
    (rf"{_P}\soff\s(?:of\s)?{_X}", "({x})*(1-({p})%)"),
    (rf"{_P}\s(?:off|discount\son)\s(?:of\s)?{_A}{_N}{_THINGS}{_TO_PAY}", "({x})*(1-({p})%)"),
    (
        rf"{_SHARE}\s{_CHANGE}\s(?:is\s)?(?:(?:it|that)\s(?:is\s)?)?(?:if|when)?\s*"
        rf"(?:[a-z]+\s){{0,4}}?(?:(?:from|between)\s+)?{_X}\s(?:to|and)\s+{_Y}",
        "(({y})-({x}))/({x})*100",
    ),
    (
        rf"(?:from|between)\s+{_N}\s(?:to|and)\s+{_M}[,;.]?\s(?:is\s)?(?:(?:what|how\smuch|by\swhat"
        rf"|by\show\smany|what's\sthe|what\sis\sthe|what\sis\sthat|how\smany|in|a|as\sa)\s)*"
        rf"(?:of\sa\s)?"
        rf"(?:{_SHARE}(?:\s{_CHANGE})?|{_CHANGE}\s(?:in|as\sa)\s{_SHARE})"
        rf"(?:\s(?:is|was)\s(?:that|it|this))?",
        "(({y})-({x}))/({x})*100",
    ),
    # "the price was 80 and now it is 60, how many percent less is that"
    *(
        (
            rf"{_WAS}{_N}{_THINGS}{_AND_NOW}{_M}[a-z\s]{{0,20}}?[,;.]?\s(?:(?:by\s)?(?:what|how"
            rf"\smany|how\smuch)|what\sis\sthe)\s{_SHARE}{change}(?:\s(?:is|was|did)\s(?:that|it"
            rf"|this)"
            r"(?:\s(?:change|rise|fall|drop|grow|increase|decrease|go\sup|go\sdown))?)?",
            formula,
        )
        for change, formula in (
            (rf"\s(?:{SMALLER}|cheaper|off)", "(({x})-({y}))/({x})*100"),
            (rf"(?:\s(?:{LARGER}|{_CHANGE}))?", "(({y})-({x}))/({x})*100"),
        )
    ),
    (
        rf"by\s(?:what|how\smany)\s{_SHARE}\s[a-z\s]{{0,60}}?from\s+{_X}\sto\s+{_Y}",
        "(({y})-({x}))/({x})*100",
    ),
    (
        rf"{_X}\s(?:is|are|makes|equals)\s\(?(?P<p>\d{{1,4}}/\d{{1,4}})\)?\sof\s(?:what|which)"
        rf"(?:\snumber)?",
        "({x})/({p})",
    ),
    (
        r"\(?(?P<p>\d{1,4}/\d{1,4})\)?\sof\s(?:what|which)(?:\snumber)?\s(?:is|are|makes|equals)\s"
        rf"{_X}",
        "({x})/({p})",
    ),
    (rf"{_X}\s(?:is|are)\s{_P}\sof\s(?:what|which)(?:\snumber)?", "({x})/(({p})%)"),
    (
        rf"{_P}\sof\s(?:what|which)(?:\snumber)?\s(?:is|are|makes|equals)\s+{_X}",
        "({x})/(({p})%)",
    ),
    (
        rf"{_X}\s(?:out\sof|of|/)\s+{_Y}\s(?:as|in|to|into)\s(?:a\s)?{_SHARE}",
        "({x})/({y})*100",
    ),
    (rf"{_X}\s(?:as|in|to|into)\s(?:an?\s)?{_SHARE}", "({x})*100"),
    (rf"(?:add|sum)(?:ing)?(?:\sup|\stogether)?\s+(?P<x>{_LIST})", "sum of {x}"),
    (rf"multiply(?:ing)?\s+(?P<x>{_LIST})", "product of {x}"),
    (rf"halv(?:e|ing)\s+{_X}", "({x})/2"),
    (
        rf"{_X}\s(?:plus|and|with)\s+(?:an?\s(?:extra|additional)\s)?{_P}(?:\s(?:added|on\stop))?",
        "({x})*(1+({p})%)",
    ),
    *(
        (
            rf"{_N}{_THINGS}[,;.]?\s(?:(?:and|then|it|but)\s)*{verb}\s(?:by\s)?{_P}{_TO_PAY}",
            f"({{x}})*(1{sign}({{p}})%)",
        )
        for verb, sign in (
            (
                r"(?:(?:go|goes|went)\sup|ris(?:es?|en)|rose|grows?|grew|increases?"
                r"|(?:is|was|gets)\s(?:raised|increased|marked\sup))",
                "+",
            ),
            (
                r"(?:(?:go|goes|went)\sdown|falls?|fell|drops?|dropped|decreases?"
                r"|(?:is|was|gets)\s(?:reduced|lowered|decreased|discounted|cut|marked\sdown))",
                "-",
            ),
        )
    ),
    # Taxes that a price includes: the question is for the price without them.
    (
        rf"{_N}{_THINGS}[,;.]?\s(?:(?:which|that|it|and|with|already|price)\s)*(?:includes?"
        rf"|including|incl\.?"
        rf"|inclusive\sof|contains?|with)\s{_P}{_BEFORE_TAX}",
        "({x})/(1+({p})%)",
    ),
    (
        rf"(?:net\s(?:price|amount|value|sum)|(?:price|amount)\s(?:before|without|excluding)\s"
        rf"(?:tax|vat|gst))"
        rf"\s(?:of|for|if|in|when)\s{_A}{_LABEL}{_N}{_THINGS}\s(?:includes?|including|incl\.?"
        rf"|with|at|contains?)"
        rf"\s{_P}",
        "({x})/(1+({p})%)",
    ),
    (rf"{_X}\s(?:minus|less|without)\s+{_P}", "({x})*(1-({p})%)"),
    (rf"{_P}\s(?:more|higher|larger)\sthan\s+{_X}", "({x})*(1+({p})%)"),
    (rf"{_P}\s(?:less|lower|smaller)\sthan\s+{_X}", "({x})*(1-({p})%)"),
    (rf"(?:an?\s)?{_P}\s(?:[a-z]+\s)?(?:on|for)\s+(?:a\sbill\sof\s)?{_X}", "({p})%*({x})"),
    (
        rf"(?:an?\s)?{_P}\s(?:[a-z]+\s)?(?:on|for)\s{_A}{_LABEL}{_N}{_THINGS}",
        "({p})%*({x})",
    ),
    (
        rf"(?:tip|tax|vat|interest|commission)\s(?:on|for|of)\s{_A}{_LABEL}{_N}{_THINGS}\s(?:at"
        rf"|with|is|if\sit\sis)"
        rf"\s(?:an?\s)?{_P}",
        "({p})%*({x})",
    ),
    # "what do I pay for a jacket of 80 euros if it is reduced by 25 percent"
    *(
        (
            rf"{_N}{_THINGS}(?:\scosts?)?,?\s(?:if|when|once|after)\s(?:it|they|that|this|the\s[a-z]+)"
            rf"\s(?:(?:is|are|was|were|gets?|has\sbeen|have\sbeen)\s)?{changed}{_TO_PAY}",
            f"({{x}})*(1{sign}({{p}})%)",
        )
        for changed, sign in (
            (
                rf"(?:reduced|discounted|lowered|decreased|cut|marked\sdown|(?:goes|go|falls?|drops?)"
                rf"(?:\sdown)?)\s(?:by\s)?{_P}",
                "-",
            ),
            (rf"(?P<p>\d[\d.]*){_PERCENT}\s(?:off|cheaper|less|lower)", "-"),
            (
                rf"(?:raised|increased|marked\sup|(?:goes|go)\sup|rises?|increases?)\s(?:by\s)?{_P}",
                "+",
            ),
            (rf"(?P<p>\d[\d.]*){_PERCENT}\s(?:more|higher|more\sexpensive|dearer)", "+"),
        )
    ),
    # "how much are 3 boxes at 14.95"
    (
        rf"(?:how\smuch|what)\s(?:is|are|do|does|would|will)\s{_N}(?P<things>(?:\s[a-z]{{3,}}){{1,3}})"
        rf"\sat\s{_M}(?:\s(?:each|apiece|a\spiece))?(?:\s(?:cost|come\sto|be))?(?:\sin\stotal|"
        rf"\saltogether)?",
        "({x})*({y})",
    ),
    (
        rf"{_N}{_THINGS}[,;.]?\s(?:(?:and|but|now|it|that|which|they|there)\s)*(?:it's|at|after"
        rf"|with|is|are|minus)\s(?:an?\s)?(?P<p>\d[\d.]*){_PERCENT}"
        rf"\s(?:discount|off|reduction){_TO_PAY}",
        "({x})*(1-({p})%)",
    ),
    (
        rf"(?:with|at|after)\s(?:an?\s)?(?P<p>\d[\d.]*){_PERCENT}\s(?:discount|reduction)"
        rf"(?:\son)?[,;]?"
        rf"\s[a-z'\s]*?{_A}{_LABEL}{_N}{_THINGS}(?:\scost)?",
        "({x})*(1-({p})%)",
    ),
    (rf"(?:an?\s)?{_P}\sdiscount\s(?:on|of|off)\s+{_X}", "({p})%*({x})"),
    (rf"(?:what\s)?{_SHARE}\sof\s+{_X}\s(?:is|are)\s+{_Y}", "({y})/({x})*100"),
    (rf"{_X}\s(?:is|are|as)\s(?:what|which|a)\s{_SHARE}\sof\s+{_Y}", "({x})/({y})*100"),
    (rf"(?:what\s)?{_SHARE}\s(?:is|are)\s+{_X}\s(?:out\s)?of\s+{_Y}", "({x})/({y})*100"),
    (rf"{_X}\s(?:reduced|decreased|lowered|discounted|cut)\sby\s+{_P}", "({x})*(1-({p})%)"),
    (rf"{_X}\s(?:increased|raised|marked\sup)\sby\s+{_P}", "({x})*(1+({p})%)"),
    (
        rf"{_X}\s(?:after|with)\s(?:an?\s)?(?P<p>\d[\d.]*){_PERCENT}\s(?:discount|off|reduction)",
        "({x})*(1-({p})%)",
    ),
    (
        rf"{_N}{_THINGS}[,;.]?\s(?:and\s)?(?:what|how\smuch)(?:'s|\sis|\swould)\s(?:be\s)?"
        rf"(?:an?\s|the\s)?"
        rf"(?P<p>\d[\d.]*){_PERCENT}\s(?:tip|tax|vat|gst|interest|commission|fee)(?:\sbe)?",
        "({p})%*({x})",
    ),
    (
        rf"{_LABEL}{_N}{_THINGS}\s(?:be\s|is\s)?(?:after|with|plus)\s(?:an?\s)?(?P<p>\d[\d.]*)"
        rf"{_PERCENT}"
        rf"\s(?:(?:pay|price|salary|wage)\s)?(?:raise|rise|increase|hike|markup|surcharge|tax"
        rf"|vat|gst|tip)"
        rf"{_TO_PAY}",
        "({x})*(1+({p})%)",
    ),
    # "out of 40 pupils 10 are ill, what percentage is that"
    *(
        (
            rf"{counted}\s(?:are|were|is|was|have|has|had|got|passed|failed|like|said|came|did)"
            rf"(?:\s[a-z]+){{0,4}}[,;.]?\s(?:what|which|how\smuch\sin)\s{_SHARE}(?:\s(?:is|are|was"
            rf"|were)\s(?:that|this|it))?",
            "({y})/({x})*100",
        )
        for counted in (
            rf"(?:out\s)?of\s(?:the\s)?{_N}{_THINGS},?\s{_M}",
            rf"{_M}\s(?:out\s)?of\s(?:the\s|our\s|my\s)?{_N}{_THINGS}",
        )
    ),
    # "45 out of 60, how many percent is that"
    (
        rf"{_N}\s(?:out\s)?of\s{_M}\s?[,;.:\x{{2013}}\x{{2014}}-]?\s(?:what|which|how\smany|how\smuch\sin)"
        rf"\s{_SHARE}\s(?:is|are|was)\s(?:that|this|it)",
        "({x})/({y})*100",
    ),
    (rf"{_SHARE}\s(?:is|are|equals)\s(?P<x>\d+/\d+|0?\.\d+)", "({x})*100"),
    (
        r"(?:collect|combine|gather|group)\s(?:the\s)?(?:like\s)?terms\s?(?::|in|of)?\s(?P<x>"
        r"[^?]+)",
        "{x}",
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
    # "the difference between 83 and 47 doubled"
    *(
        (
            rf"(?P<f>sum|product|average|mean|total)\s(?:between|of)\s(?P<x>\d[\d.]*)\sand\s"
            rf"(?P<y>\d[\d.]*),?\s{after}",
            f"({{f}}({{x}},{{y}})){operation}",
        )
        for after, operation in _AFTERWARDS
    ),
    *(
        (
            rf"difference\s(?:between|of)\s+{_X}\s(?:and|to)\s+{_Y},?\s{after}",
            f"abs(({{x}})-({{y}})){operation}",
        )
        for after, operation in _AFTERWARDS
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
        rf"(?:left(?:\sover)?|remains|remainder|rest)\s(?:of|when|if|after|from)\s(?:(?:i|you"
        rf"|we)\s)?"
        rf"(?:divid(?:e|ing)\s)?{_X}\s(?:is\s)?(?:divided\s)?by\s+{_Y}",
        "mod({x},{y})",
    ),
    (
        rf"{_N}\s(?:divided\sby|over)\s+{_M}[,;]?\s(?:(?:what(?:'s|\sis)\s)?(?:the\s)?"
        rf"(?:remainder|rest)"
        rf"|what\sis\sleft(?:\sover)?)",
        "mod({x},{y})",
    ),
    # "how many eggs are in 3 dozen", once the dozen is in digits. "How many days are in 2024" asks
    # about a year.
    (
        r"how\smany\s(?P<things>[a-z]{3,})\s(?:are\s|is\s)?(?:there\s)?in\s"
        r"(?P<x>\d{2,3}|(?:1[0-8]|2[1-9]|[3-9]\d)\d\d|\d{5,}|\d{1,3}(?:,\d{3})+)",
        "{x}",
    ),
    (
        rf"how\smany\s+(?P<x>\d[\d.]*)(?:'?s)?\s(?:are\s)?(?:there\s)?(?:in|make(?:\sup)?|(?:go"
        rf"|fit)\sin(?:to)?)"
        rf"\s+{_Y}",
        "({y})/({x})",
    ),
    (rf"how\smany\stimes\s(?:{LARGER}|as\s[a-z]+)\sis\s+{_X}\s(?:than|as)\s+{_Y}", "({x})/({y})"),
    (
        rf"(?:split|divide|share|distribute)(?:d|ing)?\s{_A}{_LABEL}{_N}{_THINGS}\s(?:"
        rf"(?:equally|evenly|up)\s)*"
        rf"(?:between|among|amongst|by|into|for|in)\s{_M}{_OTHER_THINGS}",
        "({x})/({y})",
    ),
    (
        rf"{_N}{_THINGS}\s(?:(?:split|divided|shared)\s)(?:(?:equally|evenly|up)\s)*"
        rf"(?:between|among|amongst|by|into|for)?\s*{_M}{_OTHER_THINGS}",
        "({x})/({y})",
    ),
    (
        r"(?:how\sold|what\sage)\s(?:is|was|are|were|will|would)\s(?:[a-z]+\s){1,4}?(?:be\s)?"
        r"(?:who\s(?:is|was)\s)?born\sin\s(?P<x>\d{4})\s(?:be\s)?(?:in|by)\s(?:the\syear\s)?"
        r"(?P<y>\d{4})",
        "({y})-({x})",
    ),
    (
        r"(?:if\s)?(?:i|someone|somebody|you|he|she|they)\s(?:was|were|is|am|are)\sborn\sin\s"
        r"(?P<x>\d{4})[,;]?"
        r"\show\sold\s(?:am|is|are|was|were|will|would)\s(?:i|he|she|they|you)\s(?:be\s)?in"
        r"\s(?:the\syear\s)?(?P<y>\d{4})",
        "({y})-({x})",
    ),
    (
        r"how\smany\syears\s(?:are\s|were\s)?(?:there\s)?(?:is\sit\s)?(?:passed\s)?(?:from"
        r"|between)\s(?P<x>\d{3,4})"
        r"\s(?:to|and|until|till)\s(?P<y>\d{3,4})",
        "abs(({y})-({x}))",
    ),
    # "logarithm of 1000 to base 10", "base 2 log of 64"
    (
        rf"log(?:arithm)?\s(?:of\s)?{_X}\s(?:(?:to|in|with|for)\s)?(?:the\s)?base\s(?P<y>\d"
        rf"{{1,6}})",
        "log base {y} of ({x})",
    ),
    (
        rf"base[\s-](?P<y>\d{{1,6}})\slog(?:arithm)?\s(?:of\s)?{_X}",
        "log base {y} of ({x})",
    ),
    # "reduce 42/56 to lowest terms"
    (r"(?:reduce|simplify|cancel)\s(?:the\sfraction\s)?(?P<x>\d+\s?/\s?\d+)" + _LOWEST, "({x})"),
    (r"(?P<x>\d+\s?/\s?\d+)" + _LOWEST.removesuffix("?"), "({x})"),
    (rf"reciprocal\sof\s+{_X}", "1/({x})"),
    (
        r"(?P<x>\d{1,3})\s(?:choose|over\schoose)\s(?P<y>\d{1,3})",
        "factorial({x})/(factorial({y})*factorial(({x})-({y})))",
    ),
    (
        r"(?P<f>mean|median|sum|product|total|gcd|lcm|average|max(?:imum)?|min(?:imum)?"
        r"|largest|smallest"
        r"|biggest|highest|lowest)(?:\svalue)?\s(?:of|between|among)\s(?:the\s|these\s)?"
        r"(?:(?:numbers|values|following|two|three|four|five|integers)\s?)+:?\s*(?P<x>[\d.]+"
        r"(?:,?\s+(?:and\s)?[\d.]+)+)",
        "{f} of {x}",
    ),
    (
        rf"round(?:ing|ed)?\s+(?P<x>{OPERAND})(?:off\s)?to\s+(?P<y>\d{{1,3}})(?:\sdecimals?|"
        rf"\splaces?|\sdigits?|\sfigures?)+",
        "round(({x}),{y})",
    ),
    (rf"round(?:ing|ed)?\s+up\s+{_X}", "ceil({x})"),
    (rf"round(?:ing|ed)?\s+{_X}\sup", "ceil({x})"),
    (rf"round(?:ing|ed)?\s+{_X}\sdown", "floor({x})"),
    (rf"round(?:ing|ed)?\s+down\s+{_X}", "floor({x})"),
    (
        rf"{_X}\srounded(?:\soff)?(?:\sto\sthe\snearest\s(?:whole\snumber|whole|integer|one))?",
        "round({x})",
    ),
    (
        rf"{_X}\srounded(?:\soff)?\sto\s(?P<y>\d{{1,3}})(?:\sdecimals?|\splaces?|\sdigits?)+",
        "round(({x}),{y})",
    ),
    (
        rf"round(?:ing|ed)?\s+(?:off\s)?{_X}(?:\sto\sthe\snearest\s(?:whole\snumber|whole"
        rf"|integer|one))?",
        "round({x})",
    ),
    (rf"round(?:ing|ed)?\s+(?:off\s)?{_X}\sto\sthe\snearest\s(?:ten|10)", "round(({x}),-1)"),
    (rf"round(?:ing|ed)?\s+(?:off\s)?{_X}\sto\sthe\snearest\s(?:hundred|100)", "round(({x}),-2)"),
    *(
        (
            rf"round(?:ing|ed)?\s+(?:off\s)?{_X}\sto\sthe\snearest\s{unit}",
            f"round(({{x}}),{places})",
        )
        for unit, places in (("(?:thousand|1000|1,000)", -3), ("tenth", 1), ("hundredth", 2))
    ),
    (rf"square(?:\sof)?\s+{_X}", "({x})^2"),
    (rf"cube(?:\sof)?\s+{_X}", "({x})^3"),
    (
        rf"(?:(?:what|which)(?:\sone|\snumber)?(?:'s|\sis)\s)?(?:the\s)?(?:{LARGER}|biggest"
        rf"|largest|greatest)\s?[,:]?\s+{EACH}\sor\s+{OTHER}",
        "max({x},{y})",
    ),
    (
        rf"(?:(?:what|which)(?:\sone|\snumber)?(?:'s|\sis)\s)?(?:the\s)?(?:{SMALLER}|smallest"
        rf"|lowest|least)\s?[,:]?\s+{EACH}\sor\s+{OTHER}",
        "min({x},{y})",
    ),
    (
        rf"sum\sof\s(?:all\s)?(?:the\s)?(?:whole\s)?(?:numbers|integers)\s(?:from|between)"
        rf"\s+{_X}\s(?:to|and|through)\s+{_Y}",
        "(({x})+({y}))*(({y})-({x})+1)/2",
    ),
    (r"(?P<n>\d{1,3})(?:st|nd|rd|th)\sroot\sof\s+(?P<x>[\d.,\s+\-*/^()]+)", "root({x},{n})"),
)


def find_condition(phrase: str) -> str:
    """Return a short pattern without which the phrase can't match, so that it need not be tried."""
    if opening := _OPENING_WORDS.match(phrase):
        return opening[1] or opening[2]
    if _PERCENT in phrase or _SHARE in phrase:
        return r"%|per\s?cent"
    return r"\d"
