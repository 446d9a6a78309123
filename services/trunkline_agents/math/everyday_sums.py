"""Sums of everyday life: shares of a bill, change, prices of one thing, recipes, totals, interest.

Each has a short pattern without which it can't match, a fragment of a pattern, and a formula.
"""

_MONEY = r"(?:\s?(?:dollars?|euros?|pounds?|usd|eur|gbp|bucks|quid|cents?|€|£|\$)\b)?"


def _amount(name: str) -> str:
    return rf"(?P<{name}>[$€£¥]?\d(?:[\d.,]*\d)?{_MONEY})"


_X, _Y, _Z, _W = (_amount(name) for name in "xyzw")
_SIGNED = (
    r"(?:[$€£¥]\s?\d(?:[\d.,]*\d)?|\d(?:[\d.,]*\d)?\s?(?:dollars?|euros?|pounds?|€|£|\$)|"
    r"\d[\d,]*\.\d\d)"
)
_LIST = r"[$€£¥]?\d[\d.]*(?:,\s[$€£¥]?\d[\d.]*)*,?\sand\s[$€£¥]?\d[\d.]*"
_SOME = r"(?:[\s,-][a-z'-]+){0,8}?"
_FEW = r"(?:[\s-][a-z'-]+){0,4}?"
_BREAK = r"\s?[,;.:]?\s(?:and\s|so\s|but\s|then\s)?"
_ASKED = r"(?:\s[a-z'-]+){0,9}"
_HOW = r"(?:how\s(?:much|many)|what(?:'s)?)"
_EACH = (
    r"(?:each|apiece|every(?:one|body)|per\s(?:person|head|guest|child|friend)|(?:for|by)\s(?:each|every)\s[a-z]+"
    r"|one\sperson)"
)
_PEOPLE = (
    r"(?:people|persons|friends|of\sus|guests|kids|children|colleagues|adults|students|pupils"
    r"|families"
    r"|roommates|flatmates|players|members|siblings|brothers|sisters|couples|ways)"
)
_THEN = r"(?:[a-z'-]+\s){0,4}?"
_PORTIONS = (
    r"(?:people|persons?|servings?|portions?|guests?|adults|kids|children|cakes?|loaves|cookies"
    r"|pancakes"
    r"|muffins|eggs|km|kilomet(?:er|re)s|miles|hours?|days?|minutes?|weeks?|months?|g|grams|kg"
    r"|kilos?|litres?"
    r"|liters?|ml|cups?)"
)
_JOINED = rf"{_FEW}(?:,\sand\s|,\s|\sand\s){_THEN}"
_TOTAL = (
    rf"(?:(?:{_BREAK}|\s[\x{{2013}}\x{{2014}}-]\s)(?:{_HOW}{_ASKED}|(?:in\s)?total"
    r"|altogether|all\stogether))?"
)
_THE_PIECE = r"(?:\s(?:each|apiece))?"
_ONE = r"(?:one|1|a\ssingle|each|an?|every|per)"
_SPEND = (
    r"(?:spend|spent|spends|pay|paid|pays|give|gave|gives|lose|lost|use|used|uses|eat|ate|eats"
    r"|sell|sold"
    r"|sells|drink|drank|buy|bought|donate|donated|take\saway|break|broke|cost|costs|withdraw"
    r"|withdrew)"
)
_LEFT = r"(?:left(?:\sover)?|remain(?:s|ing)?|change|back|over|still)"
_SPEED = r"\s?(?:km/h|kmh|kph|mph|(?:km|kilomet(?:re|er)s|miles)\s(?:per|an)\shour)"
_DISTANCE = r"\s?(?:km|kilomet(?:re|er)s|miles)"
_HOURS = r"\s?(?:h|hours?|hrs?)"
_PARTS = {
    "halves": 2,
    "thirds": 3,
    "quarters": 4,
    "fourths": 4,
    "fifths": 5,
    "sixths": 6,
    "sevenths": 7,
    "eighths": 8,
    "ninths": 9,
    "tenths": 10,
    "twelfths": 12,
    "sixteenths": 16,
    "hundredths": 100,
    "thousandths": 1000,
}
PARTS = tuple(_PARTS)
"""Fractions in the plural: "halves", "quarters"."""
_OF_PARTS = r"(?:are\s|is\s)?(?:there\s)?(?:in|make(?:\sup)?|(?:go|fit)\sin(?:to)?)"
# A quarter is also a part of a year: "how many quarters are in 2026".
_COUNTED = r"\(?(?P<x>\d{1,3}(?:,\d{3})+|(?:\d{1,3}|\d{5,})(?:\.\d+|/\d+)?|\d+\.\d+)\)?"

EVERYDAY_SUMS: tuple[tuple[str, str, str], ...] = (
    # "how many quarters are there in 5", "how many halves make a whole"
    *(
        (name, rf"how\smany\s{name}\s{_OF_PARTS}\s{whole}", formula)
        for name, number in _PARTS.items()
        for whole, formula in (
            (rf"{_COUNTED}(?:\swholes?)?", f"{number}*({{x}})"),
            (r"(?:a|the)\swhole", f"{number}*1"),
        )
    ),
    # "I paid $46.80 for lunch for 4 people, how much is that each"
    (
        _EACH,
        rf"{_X}{_SOME}\s(?P<y>\d{{1,4}})\s{_PEOPLE}{_FEW}{_BREAK}{_HOW}{_ASKED}\s?{_EACH}{_ASKED}",
        "({x})/({y})",
    ),
    (
        _EACH,
        rf"{_HOW}{_ASKED}\s{_EACH}{_ASKED}?,?\s(?:if|when){_SOME}\s(?P<y>\d{{1,4}})\s{_PEOPLE}"
        rf"{_SOME}"
        rf"\s(?P<x>{_SIGNED}){_FEW}",
        "({x})/({y})",
    ),
    # "4 friends share a bill of 90 euros, how much does each pay"
    (
        _EACH,
        rf"(?P<y>\d{{1,4}})\s{_PEOPLE}{_SOME}\s{_X}{_FEW}{_BREAK}{_HOW}{_ASKED}\s?{_EACH}{_ASKED}",
        "({x})/({y})",
    ),
    # "a pack of 12 eggs costs 3.60, what does one egg cost"
    (
        rf"\b{_ONE}\b",
        rf"(?P<y>\d{{1,5}})\s[a-z]+{_FEW}\s(?:costs?|cost\sme|for|are|is|weighs?)\s{_X}{_FEW}"
        rf"{_BREAK}{_HOW}"
        rf"(?:'s|\s(?:is|does|do|would|will|are))?(?:\sthe)?(?:\s(?:price|cost)\s(?:of|for"
        rf"|per))?\s{_ONE}(?:\s[a-z]+){{0,3}}",
        "({x})/({y})",
    ),
    # "if a recipe for 4 people needs 300 grams of flour, how much do I need for 6 people"
    (
        r"\b(?:for|per|serves?|in|make|makes)\b",
        rf"(?P<y>\d[\d.]*)\s?[a-z]+{_FEW}\s(?:for|per|serves?|makes?|in)\s(?P<x>\d[\d.]*)\s?"
        rf"{_PORTIONS}"
        rf"{_FEW}{_BREAK}{_HOW}{_ASKED}\s(?P<z>\d[\d.]*)\s?{_PORTIONS}{_FEW}",
        "({y})/({x})*({z})",
    ),
    # "3 tickets for 20 euros, how much are 6 tickets", "12 hours at 15 dollars an hour"
    (
        r"\bfor\b.*\d.*\bhow\b",
        rf"(?P<x>\d{{1,5}})\s[a-z]+{_FEW}\s(?:for|cost|costs|are)\s(?P<y>{_SIGNED}){_FEW}"
        rf"{_BREAK}{_HOW}{_ASKED}"
        rf"\s(?P<z>\d{{1,5}})\s[a-z]+{_FEW}",
        "({y})/({x})*({z})",
    ),
    (
        r"\b(?:an?|per|each|every)\s(?:hour|day|week|month|night|km|mile|kilo|kg|person|piece)\b",
        rf"{_X}{_FEW}\s(?:an?|per|each|every)\s(?:hour|day|week|month|night|km|mile|kilo|kg"
        rf"|person|piece)"
        rf"{_FEW}{_BREAK}(?:{_HOW}){_ASKED}\s(?P<y>\d[\d.,]*)\s[a-z]+{_FEW}",
        "({x})*({y})",
    ),
    (
        r"\b(?:an?|per|each|every)\s(?:hour|day|week|month|night|km|mile|kilo|kg|person|piece)\b",
        rf"(?P<y>\d[\d.,]*)\s[a-z]+{_FEW}\s(?:at|for|of)\s{_X}\s(?:an?|per|each|every)\s(?:hour"
        rf"|day|week|month"
        rf"|night|km|mile|kilo|kg|person|piece)(?:{_BREAK}{_HOW}{_ASKED})?",
        "({x})*({y})",
    ),
    # "I have 50 dollars and spend 17.50, how much is left"
    *(
        (
            rf"\b{_LEFT}\b",
            rf"{_X}{_SOME}{spent}{_FEW}{_BREAK}{_HOW}{_ASKED}\s{_LEFT}{_ASKED}",
            formula,
        )
        for spent, formula in (
            (
                rf"{_BREAK}{_THEN}{_SPEND}{_FEW}\s{_Y}{_FEW}{_BREAK}{_THEN}{_Z}",
                "({x})-({y})-({z})",
            ),
            (rf"{_BREAK}{_THEN}{_SPEND}{_FEW}\s{_Y}", "({x})-({y})"),
        )
    ),
    (
        r"\bchange\b",
        rf"{_X}{_FEW}\s(?:for|on|when){_SOME}\s(?:costs?|costing|worth|at|for|is)\s{_Y}{_FEW}"
        rf"{_BREAK}{_HOW}"
        rf"{_ASKED}\s(?:change|back){_ASKED}",
        "({x})-({y})",
    ),
    (
        r"\bchange\b",
        rf"(?:change|back){_SOME}\s(?:from|for|out\sof|of|with)\s(?:an?\s)?{_X}{_FEW}\s"
        rf"(?:if|when|for|after|and){_SOME}\s{_Y}{_FEW}",
        "({x})-({y})",
    ),
    (
        rf"\b{_SPEND}\b.*\b{_LEFT}\b",
        rf"{_SPEND}\s{_X}{_FEW}\s(?:of|from|out\sof)\s(?:my\s|the\s)?{_Y}{_FEW}{_BREAK}{_HOW}"
        rf"{_ASKED}\s{_LEFT}{_ASKED}",
        "({y})-({x})",
    ),
    (
        rf"{_HOW}.*\b{_LEFT}\b.*{_SPEND}",
        rf"{_HOW}{_ASKED}\s{_LEFT}{_ASKED}?\s(?:of|from|out\sof)\s{_X}{_FEW}\s(?:if|when|after)"
        rf"{_FEW}\s"
        rf"(?:{_SPEND}|spending|paying|buying){_FEW}\s{_Y}{_FEW}",
        "({x})-({y})",
    ),
    # "3 coffees at 2.80 and 2 cakes at 3.50"
    (
        r"\bat\b.*\bat\b",
        rf"{_X}\s[a-z]+{_FEW}\sat\s{_Y}{_THE_PIECE}(?:,\s|\sand\s|,\sand\s|\splus\s)"
        rf"{_Z}\s"
        rf"[a-z]+{_FEW}\sat\s{_W}{_THE_PIECE}{_TOTAL}",
        "({x})*({y})+({z})*({w})",
    ),
    # "3 notebooks at 4.75 each plus one pen for 2.20 - total"
    (
        r"\bat\b.*\d.*\b(?:and|plus)\b",
        rf"(?P<x>\d{{1,5}})\s[a-z]+{_FEW}\sat\s{_Y}{_THE_PIECE}(?:,\s|\sand\s|,\sand\s|\splus\s)"
        rf"(?:an?|one|1|another|the)\s[a-z]+{_FEW}\s(?:for|at|costing|worth)\s{_Z}{_TOTAL}",
        "({x})*({y})+({z})",
    ),
    # "I have to tip 18 percent on a bill of $64.50, how much is the tip"
    (
        r"\bhow\smuch\b|\bwhat\b",
        rf"(?P<p>\d[\d.]*)\s?(?:%|per\s?cent){_FEW}\s(?:on|of|for){_FEW}\s{_X}{_FEW}{_BREAK}{_HOW}"
        rf"(?:'s|\s(?:is|would|will|do|must|should))(?:\sbe)?(?:\s(?:the|that|it|my|i|we)){{0,2}}\s"
        rf"(?:tip|tax|vat|fee|commission|discount|interest|deposit|share|it|that)(?:\sbe)?",
        "({p})%*({x})",
    ),
    # "a coffee costs 2.80 and a cake 3.50, how much is it altogether"
    *(
        (
            r"\b(?:total|altogether|together|in\sall|sum|spend|spent|pay|all)\b",
            rf"(?:an?|the|my|for|one|i|we)\s[a-z]+{_SOME}\s{sums}{_FEW}{_BREAK}{_HOW}{_ASKED}\s"
            rf"(?:total"
            rf"|altogether|together|in\sall|sum|spend|spent|pay|all){_ASKED}",
            formula,
        )
        for sums, formula in (
            (
                rf"(?P<x>{_SIGNED}){_JOINED}(?P<y>{_SIGNED}){_JOINED}(?P<z>{_SIGNED})",
                "({x})+({y})+({z})",
            ),
            (rf"(?P<x>{_SIGNED}){_JOINED}(?P<y>{_SIGNED})", "({x})+({y})"),
        )
    ),
    # "we spent 312.40, 98.15 and 450 this month, what does it come to altogether"
    (
        r"\b(?:come|comes|add|adds)\s(?:up\s)?to\b|\bin\stotal\b|\baltogether\b",
        rf"(?P<x>{_LIST}){_FEW}{_BREAK}{_HOW}(?:'s|\s(?:is|was|do|does|did))\s(?:it|that|this"
        rf"|they|these)"
        r"(?:\sall)?(?:\s(?:come|add)\s(?:up\s)?to)?(?:\s(?:altogether|in\stotal|in\sall"
        r"|together))?",
        "sum of {x}",
    ),
    # "I drive 180 km at 60 km/h, how long does it take"
    (
        r"\bhow\slong\b|\bhours\b",
        rf"{_X}{_DISTANCE}{_FEW}\s(?P<y>\d[\d.,]*){_SPEED}{_FEW}{_BREAK}(?:how\slong|how\smany"
        rf"\shours){_ASKED}",
        "({x})/({y})",
    ),
    (
        r"\bhow\slong\b|\bhours\b",
        rf"(?P<y>\d[\d.,]*){_SPEED}{_FEW}{_BREAK}(?:how\slong|how\smany\shours){_ASKED}\s{_X}"
        rf"{_DISTANCE}{_FEW}",
        "({x})/({y})",
    ),
    (
        r"\bhow\sfar\b|\bdistance\b|\bhow\smany\s(?:km|miles|kilo)",
        rf"(?P<x>\d[\d.,]*){_SPEED}{_FEW}\s(?P<y>\d[\d.,]*){_HOURS}{_FEW}{_BREAK}"
        rf"(?:how\sfar|what\sdistance|how\smany\s[a-z]+){_ASKED}",
        "({x})*({y})",
    ),
    (
        r"\bspeed\b|\bhow\sfast\b",
        rf"{_X}{_DISTANCE}{_FEW}\s(?:in|within|takes?|over)\s(?P<y>\d[\d.,]*){_HOURS}{_FEW}{_BREAK}"
        rf"(?:how\sfast|what(?:'s|\sis|\swas)\s(?:my|the|your|its|our)\s(?:average\s)?speed)"
        rf"{_ASKED}",
        "({x})/({y})",
    ),
    (
        r"\bspeed\b|\bhow\sfast\b",
        rf"(?:speed|how\sfast){_SOME}\s{_X}{_DISTANCE}{_FEW}\s(?:in|within|over)\s(?P<y>\d["
        rf"\d.,]*){_HOURS}{_FEW}",
        "({x})/({y})",
    ),
    # A price and a share off it: "89 euros and I get 15% off, how much do I pay"
    (
        r"%|per\s?cent",
        rf"{_X}{_FEW}{_BREAK}{_THEN}(?P<p>\d[\d.]*)\s?(?:%|per\s?cent)\s(?:off|discount"
        rf"|reduction|rebate)"
        rf"{_FEW}{_BREAK}{_HOW}{_ASKED}\s(?:pay|cost|price|left|spend|it|that){_ASKED}",
        "({x})*(1-({p})%)",
    ),
    # An amount and a change: "3200 euros, how much is 4.5% more"
    *(
        (
            rf"\b{order}\b",
            rf"{_X}{_FEW}{_BREAK}{_HOW}(?:'s|\s(?:is|are|would|be))*\s(?P<p>\d[\d.]*)\s?(?:%|per"
            rf"\s?cent)\s"
            rf"{order}(?:\sthan\s(?:that|it|this))?",
            f"({{x}})*(1{sign}({{p}})%)",
        )
        for order, sign in ((r"(?:more|higher|extra)", "+"), (r"(?:less|lower|off|cheaper)", "-"))
    ),
)

_P = r"(?P<p>\d[\d.]*)\s?(?:%|per\s?cent)"
_RATE = (
    rf"(?:(?:at|with|and|for|of)\s)?(?:an?\s)?(?:(?:annual|yearly|simple|fixed)\s)?"
    rf"(?:interest\s)?(?:rate\s)?(?:of\s)?{_P}(?:\s(?:(?:annual|yearly|simple|fixed)\s)?"
    rf"(?:interest))?(?:\s(?:a|per|each)\s(?:year|annum))?"
)
_YEARS = r"(?:over|for|after|in|during)\s(?P<n>\d{1,3})\syears?(?:'\sinterest)?"
INTEREST: tuple[str, ...] = (
    rf"{_P}\s(?:(?:annual|yearly|simple)\s)?interest(?:\s(?:a|per)\s(?:year|annum))?\s(?:on|for"
    rf"|of)\s{_X}{_FEW}\s{_YEARS}",
    rf"interest\s(?:on|for|of)\s{_X}{_FEW}\s(?:at\s)?{_RATE}\s{_YEARS}",
    rf"interest\s(?:on|for|of)\s{_X}{_FEW}\s{_YEARS}\s{_RATE}",
    rf"interest\s(?:do|will|would|does|can){_FEW}\s(?:on|for|from)\s{_X}{_FEW}\s{_RATE}\s{_YEARS}",
    rf"interest\s(?:do|will|would|does|can){_FEW}\s(?:on|for|from)\s{_X}{_FEW}\s{_YEARS}\s{_RATE}",
    rf"{_X}{_FEW}\s{_RATE}\s{_YEARS}{_BREAK}{_HOW}{_ASKED}\sinterest{_ASKED}",
)
"""Questions for the interest of some years."""
GROWN: tuple[str, ...] = tuple(
    rf"(?:how\smuch|what)\s(?:will|would|do|does|are|is)\s{_SOME}\s?{_X}{_SOME}\s{times}{_SOME}"
    for times in (rf"{_YEARS}{_SOME}\s{_RATE}", rf"{_RATE}{_SOME}\s{_YEARS}")
)
"""Questions for an amount with the interest of some years, and interest on it."""
COMPOUND: tuple[str, ...] = (
    rf"compound\sinterest\s(?:on|for|of)\s{_X}{_FEW}\s(?:at\s)?{_RATE}\s{_YEARS}",
    rf"{_P}\scompound\sinterest\s(?:on|for|of)\s{_X}{_FEW}\s{_YEARS}",
)
"""Questions for interest that is paid on interest."""

# Sentences with these numbers and no other ones. Words of other questions are excluded.
_ANY = r"[^\d%]*?"
_N = r"(?P<n>\d{1,4})"
_A_PERCENT = r"(?P<p>\d[\d.]*)\s?(?:%|per\s?cent)"
_HEADS = rf"{_N}\s?(?:of\sus|ways|{_PEOPLE})\b"
_HEADS_BEHIND = r"(?:between|among|by|with|into|for|across)\s(?:the\s)?(?P<n>\d{1,4})(?:\s[a-z]+)?"
_IN_PERCENT = r"\b(?:per\s?cent(?:age)?)\b|%"
SENTENCES: tuple[tuple[str, str, str, str], ...] = (
    # A change in percent: by how much percent did it rise from 80 to 92
    (
        _IN_PERCENT,
        rf"{_ANY}\bfrom\s{_X}{_ANY}\bto\s(?:only\s|just\s)?{_Y}{_ANY}",
        "(({y})-({x}))/({x})*100",
        r"\b(?:per\s?cent(?:age)?)\b.*\bof\s[$€£]?\d",
    ),
    # A share: 8 of 32 students failed, what percentage is that
    (
        _IN_PERCENT,
        rf"{_ANY}{_X}{_ANY}\s(?:out\s)?of\s(?:the\s|my\s|our\s|a\stotal\sof\s|all\s)?{_Y}{_ANY}",
        "({x})/({y})*100",
        r"\d\s?(?:%|per\s?cent)|\bnot\b|n't|\b(?:more|less|remain|remaining|left|rest|others?"
        r"|without|plus|minus)\b",
    ),
    # The same with the whole first: in a class of 25 pupils 4 are absent, what percentage is absent
    (
        _IN_PERCENT,
        rf"{_ANY}\b(?:class|group|team|total|school|company|out)\sof\s{_Y}\s[a-z]+,?\s{_X}\s"
        rf"(?:are|is|were|was|have|has"
        rf"|had|failed|passed|came){_ANY}",
        "({x})/({y})*100",
        r"\d\s?(?:%|per\s?cent)|\bnot\b|n't|\b(?:more|less|remain|remaining|left|rest|others?)\b",
    ),
    # A price with a share off it: a coat costs 150 euros and is 30% cheaper, what does it cost
    (
        r"\b(?:cheaper|reduced|off|less)\b",
        rf"{_ANY}{_X}{_ANY}{_A_PERCENT}\s(?:cheaper|off|less){_ANY}{_HOW}(?:'s|\s(?:is|does|do"
        rf"|will|must))\s{_ANY}",
        "({x})*(1-({p})%)",
        r"\b(?:before|original|originally|regular|full|old|used|was|were|save|saved|discount"
        r"\sin)\b",
    ),
    # A recipe for other people: a recipe for 6 needs 450 g of rice, how much for 4
    (
        r"\brecipe\b|\bserves?\b",
        rf"{_ANY}\b(?:for|serves?)\s(?P<x>\d{{1,3}})\b{_ANY}(?P<y>\d[\d.]*)\s?[a-z]+{_ANY}{_HOW}"
        rf"{_ANY}(?P<z>\d{{1,3}})\b{_ANY}",
        "({y})/({x})*({z})",
        r"%|\b(?:minutes?|hours?|more|less|times)\b",
    ),
    # The tax in a price: how much VAT is in 119 euros at 19%
    *(
        (
            r"\b(?:vat|tax|gst)\b",
            pattern,
            "({x})-({x})/(1+({p})%)",
            r"\b(?:without|before|net|excluding|plus|add)\b",
        )
        for pattern in (
            rf"{_HOW}{_ANY}\b(?:vat|tax|gst)\s(?:is\s)?(?:included\s|contained\s)?in{_ANY}{_X}"
            rf"{_ANY}{_A_PERCENT}{_ANY}",
            rf"{_ANY}{_X}{_ANY}\b(?:includes|including|contains|incl)\b{_ANY}{_A_PERCENT}{_ANY}"
            rf"{_HOW}(?:'s|\s(?:is|was))?\s"
            rf"(?:the\s|of\s(?:that|it)\sis\s)?(?:vat|tax|gst)(?:\s(?:is|in)[a-z\s]*)?",
        )
    ),
    # A price before a discount: after a 20% discount it costs 64, what did it cost before
    *(
        (
            r"\b(?:before|original|originally|regular|full|old|used)\b",
            pattern,
            "({x})/(1-({p})%)",
            r"\b(?:tax|vat|tip|gst|raise|increase)\b",
        )
        for pattern in (
            rf"{_ANY}{_A_PERCENT}\s(?:off|discount|reduction|rebate|sale|cheaper){_ANY}{_X}"
            rf"{_ANY}{_HOW}{_ANY}\b"
            r"(?:before|original|originally|regular|full|old|used\sto)\b[^\d%]*",
            rf"{_ANY}{_X}{_ANY}{_A_PERCENT}\s(?:off|discount|reduction|rebate|sale|cheaper)"
            rf"{_ANY}{_HOW}{_ANY}\b"
            r"(?:before|original|originally|regular|full|old|used\sto)\b[^\d%]*",
        )
    ),
    # A raise or a cut of what is paid again and again: I earn 3,200 a month and get a 4% raise
    *(
        (
            words,
            rf"{_ANY}{_X}{_ANY}{share}{_ANY}{_HOW}{_ANY}",
            f"({{x}})*(1{sign}({{p}})%)",
            r"\b(?:before|original|originally|previous|previously|old|used\sto|differences?|extra)\b"
            r"|\bmore\s(?:do|will|would|is)\b|\bvat\b|\btax\b"
            r"|\b(?:month|week|hour|day)\b.*\b(?:year|yearly|annual|annually)\b"
            r"|\b(?:year|annual)\b.*\b(?:month|monthly|week|weekly|hour|hourly)\b",
        )
        for words, name, sign in (
            (
                r"\b(?:raise|rise|increase)\b",
                r"(?:(?:pay|salary|wage|rent)\s)?(?:raise|rise|increase)",
                "+",
            ),
            (
                r"\b(?:cut|reduction|decrease)\b",
                r"(?:(?:pay|salary|wage|rent)\s)?(?:cut|reduction|decrease)",
                "-",
            ),
        )
        for share in (rf"{_A_PERCENT}\s{name}\b", rf"\b{name}\s(?:of|by)\s{_A_PERCENT}")
    ),
    # The whole of a share: if 30% of a number is 45, what is the number
    (
        r"%|per\s?cent",
        rf"(?:if\s)?{_A_PERCENT}\sof\s(?:an?|the|my|our|some|all|what)\s[a-z]+{_FEW}\s(?:is|are"
        rf"|was|were|equals|makes?|gives?)\s"
        rf"{_X}{_ANY}",
        "({x})/(({p})%)",
        r"\b(?:left|remain|rest|other|others|not)\b",
    ),
    # A bill with a tip that people share: split 187 between 6 people, 10% tip first
    *(
        (
            r"\btips?\b|\bservice\b",
            rf"{_ANY}{pattern}{_ANY}",
            "({x})*(1+({p})%)/({n})",
            r"\b(?:without|before\s(?:the\s)?tip|includes|including|included)\b",
        )
        for heads in (_HEADS, _HEADS_BEHIND)
        for pattern in (
            rf"{_X}{_ANY}{heads}{_ANY}{_A_PERCENT}",
            rf"{_X}{_ANY}{_A_PERCENT}{_ANY}{heads}",
            rf"{_A_PERCENT}{_ANY}{_X}{_ANY}{heads}",
            rf"{heads}{_ANY}{_X}{_ANY}{_A_PERCENT}",
        )
    ),
    # An average: my grades are 1.7, 2.3 and 2.0, what's the average
    (
        r"\b(?:average|mean)\b",
        rf"{_ANY}(?P<x>[$€£]?\d[\d.]*(?:,\s[$€£]?\d[\d.]*)*,?\sand\s[$€£]?\d[\d.]*|\d[\d.]*(?:,"
        rf"\s\d[\d.]*)+)"
        r"[^\d%]*",
        "mean of {x}",
        r"\b(?:speed|per|without|except|median)\b",
    ),
    # Fuel for a way, and its price: 7 litres per 100 km, petrol costs 1.80 per litre, 450 km
    *(
        (
            r"\blit(?:re|er)s?\b.*\b100\s?km",
            rf"{_ANY}{pattern}{_ANY}",
            "({x})/100*({y})*({z})",
            r"%|\b(?:speed|hours?)\b",
        )
        for pattern in (
            rf"(?P<x>\d[\d.]*)\s?(?:lit(?:re|er)s?|l)\b{_ANY}\b100\s?km{_ANY}{_Y}{_ANY}\blit"
            rf"(?:re|er){_ANY}(?P<z>\d[\d.,]*)\s?km",
            rf"(?P<x>\d[\d.]*)\s?(?:lit(?:re|er)s?|l)\b{_ANY}\b100\s?km{_ANY}(?P<z>\d[\d.,]*)"
            rf"\s?km{_ANY}{_Y}{_ANY}\blit(?:re|er)",
            rf"(?P<z>\d[\d.,]*)\s?km{_ANY}(?P<x>\d[\d.]*)\s?(?:lit(?:re|er)s?|l)\b{_ANY}\b100"
            rf"\s?km{_ANY}{_Y}{_ANY}\blit(?:re|er)",
        )
    ),
    # An amount that is saved or paid again and again
    *(
        (
            r"\bhow\slong\b|\bhow\smany\s(?:months|weeks|days|years)\b",
            rf"{_ANY}{_X}\s(?:an?|per|each|every)\s(?:month|week|day|year){_ANY}\bhow\s(?:long"
            rf"|many\s[a-z]+){_ANY}{_Y}[^\d%]*",
            "({y})/({x})",
            r"\b(?:interest|speed|hour|already|km|miles|pages|left)\b|%",
        ),
    ),
    *(
        (
            rf"\b{unit}\b.*\b{longer}s?\b",
            rf"{_ANY}{_X}\s(?:an?|per|each|every)\s{unit}{_BREAK}{_HOW}{_ANY}\s(?:after|in|over"
            rf"|within|per|for)\s(?:an?|one|1|the"
            rf"|each|every)\s(?:whole\s|full\s)?{longer}[^\d%]*",
            f"({{x}})*{factor}",
            r"%|\binterest\b",
        )
        for unit, longer, factor in (
            ("month", "year", "12"),
            ("week", "year", "52"),
            ("day", "week", "7"),
            ("day", "year", "365"),
        )
    ),
    # A rate: what is my hourly wage if I get 2960 for 160 hours
    (
        r"\bhourly\b|\bper\shour\b|\ban\shour\b",
        rf"{_ANY}\b(?:hourly|per\shour|an\shour){_ANY}{_X}{_FEW}\s(?:for|in)\s(?P<y>\d[\d.]*)\s?"
        rf"(?:hours|h){_ANY}",
        "({x})/({y})",
        r"%|\b(?:km|miles|speed)\b",
    ),
    # A rounded number: what's 2,749 to the nearest hundred
    *(
        (
            r"nearest",
            rf"{_ANY}(?P<x>\d[\d,]*(?:\.\d+)?)\s(?:rounded\s)?(?:off\s)?to\s(?:the\s)?nearest\s"
            rf"{unit}",
            f"round(({{x}}),{places})",
            r"%",
        )
        for unit, places in (
            (r"(?:ten|10)", -1),
            (r"(?:hundred|100)", -2),
            (r"(?:thousand|1,?000)", -3),
            (r"(?:tenth|0\.1)", 1),
            (r"(?:hundredth|cent|0\.01)", 2),
            (r"(?:whole\snumber|whole|integer|one|euro|dollar|pound)", 0),
        )
    ),
    # A floor: a room is 4.5 m by 3.2 m, what's its area
    (
        r"\barea\b|\bhow\s(?:big|large)\b|\bsquare\s(?:met|feet)",
        rf"{_ANY}(?P<x>\d[\d.]*)\s?(?P<unit>m|met(?:re|er)s?|cm|feet|ft)?\s(?:by|x|times)\s"
        rf"(?P<y>\d[\d.]*)"
        rf"\s?(?:m|met(?:re|er)s?|cm|feet|ft)?(?:\s(?:long|wide|large|big))?\b{_ANY}",
        "({x})*({y})",
        r"\b(?:perimeter|volume|triangle|tiles?|paint|circle|without|minus|high|cm.*\bm|m\b.*cm)\b",
    ),
    # An age in words of another one: Tom is 12 and his sister is twice as old
    *(
        (
            r"\bold(?:er)?\b|\byounger\b|\bage\b",
            rf"{_ANY}\b(?:is|am|'m|are)\s(?P<x>\d{{1,3}})(?:\syears\sold)?{_ANY}{words}{_ANY}",
            formula,
            r"\b(?:born|was|were|in\s(?:an?|\d+)\syears?|combined|together|sum|total)\b",
        )
        for words, formula in (
            (r"\b(?:twice|double)\b", "2*({x})"),
            (r"\b(?P<y>\d{1,2})\stimes\b", "({y})*({x})"),
            (r"\bhalf\s(?:as|my|his|her|the|that)\b", "({x})/2"),
            (r"\b(?P<y>\d{1,2})\syears?\solder\b", "({x})+({y})"),
            (r"\b(?P<y>\d{1,2})\syears?\syounger\b", "({x})-({y})"),
        )
    ),
)
