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
    r"(?:each|apiece|per\s(?:person|head|guest|child|friend)|(?:for|by)\s(?:each|every)\s[a-z]+"
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

EVERYDAY_SUMS: tuple[tuple[str, str, str], ...] = (
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
        rf"(?P<x>{_LIST}){_FEW}{_BREAK}{_HOW}(?:'s|\s(?:is|was|do|does|did))\s(?:it|that|this|they|these)"
        r"(?:\sall)?(?:\s(?:come|add)\s(?:up\s)?to)?(?:\s(?:altogether|in\stotal|in\sall|together))?",
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
        rf"{_X}{_FEW}{_BREAK}{_THEN}(?P<p>\d[\d.]*)\s?(?:%|per\s?cent)\s(?:off|discount|reduction|rebate)"
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
COMPOUND: tuple[str, ...] = (
    rf"compound\sinterest\s(?:on|for|of)\s{_X}{_FEW}\s(?:at\s)?{_RATE}\s{_YEARS}",
    rf"{_P}\scompound\sinterest\s(?:on|for|of)\s{_X}{_FEW}\s{_YEARS}",
)
"""Questions for interest that is paid on interest."""
