"""Resolves names and signs of currencies to codes, and suggests codes for an unknown name."""

from collections.abc import Collection
from difflib import get_close_matches

from trunkline.errors import InvalidArgumentError

# Code, countries, adjectives, and the nouns of the currency in the singular. The first currency
# with a noun is meant if the noun has no adjective.
_CURRENCIES = (
    (
        "EUR",
        "germany france italy spain austria ireland finland the_eurozone europe",
        "european",
        "euro",
    ),
    (
        "USD",
        "the_us the_usa usa america the_united_states the_states",
        "us american",
        "dollar buck",
    ),
    (
        "GBP",
        "britain great_britain england the_uk uk scotland",
        "british english uk",
        "pound quid sterling pound_sterling",
    ),
    ("JPY", "japan", "japanese", "yen"),
    ("CHF", "switzerland", "swiss", "franc"),
    ("CAD", "canada", "canadian", "dollar"),
    ("AUD", "australia", "australian aussie", "dollar"),
    ("NZD", "new_zealand", "new_zealand", "dollar"),
    ("HKD", "hong_kong", "hong_kong", "dollar"),
    ("SGD", "singapore", "singapore", "dollar"),
    ("CNY", "china", "chinese", "yuan renminbi"),
    ("INR", "india", "indian", "rupee"),
    ("KRW", "korea south_korea", "korean south_korean", "won"),
    ("SEK", "sweden", "swedish", "krona kronor krone kroner crown"),
    ("NOK", "norway", "norwegian", "krone kroner crown"),
    ("DKK", "denmark", "danish", "krone kroner crown"),
    ("ISK", "iceland", "icelandic", "krona kronur krone crown"),
    ("CZK", "czechia the_czech_republic", "czech", "koruna crown"),
    ("PLN", "poland", "polish", "zloty"),
    ("HUF", "hungary", "hungarian", "forint"),
    ("TRY", "turkey", "turkish", "lira"),
    ("MXN", "mexico", "mexican", "peso"),
    ("PHP", "the_philippines", "philippine filipino", "peso"),
    ("BRL", "brazil", "brazilian", "real reais"),
    ("ZAR", "south_africa", "south_african", "rand"),
    ("THB", "thailand", "thai", "baht"),
    ("ILS", "israel", "israeli", "shekel"),
    ("MYR", "malaysia", "malaysian", "ringgit"),
    ("IDR", "indonesia", "indonesian", "rupiah"),
    ("RON", "romania", "romanian", "leu lei"),
    ("BGN", "bulgaria", "bulgarian", "lev leva"),
    ("RUB", "russia", "russian", "rouble ruble"),
)
# "krone" alone is more often Norwegian, "krona" Swedish.
_MEANT = {"krone": "NOK", "kroner": "NOK", "krona": "SEK", "kronor": "SEK"}


def _list_names() -> dict[str, str]:
    """Return the codes of all names. A currency is also named by its country."""
    names: dict[str, str] = {}
    for code, countries, adjectives, nouns in _CURRENCIES:
        words = [
            [word.replace("_", " ") for word in text.split()]
            for text in (countries, adjectives, nouns)
        ]
        for noun in words[2]:
            names.setdefault(noun, code)
            names |= {f"{adjective} {noun}": code for adjective in words[1]}
        names |= {noun.replace(" ", "s ", 1): code for noun in words[2] if " " in noun}
        names |= {f"{adjective} currency": code for adjective in words[1]}
        names |= {f"{adjective} money": code for adjective in words[1]}
        names |= {f"currency of {country}": code for country in words[0]}
        names |= {f"currency in {country}": code for country in words[0]}
    return names | _MEANT


NAMES = _list_names()
"""Names in the singular, in lower case, and their codes. The lookup removes a plural s."""
COUNTRY_NAMES = tuple(sorted(name for name in NAMES if name.startswith("currency ")))
"""Names by country, such as "currency of japan"."""
SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "₪": "ILS"}

_MAX_SHOWN_CHARS = 30


def resolve_currency(name: str, codes: Collection[str]) -> str:
    """Return the code of a currency from its code, name or sign.

    Raises:
        InvalidArgumentError: the name is unknown; the text lists the known codes and similar ones.
    """
    plain = " ".join(name.split())
    lowered = plain.lower()
    code = SIGNS.get(plain) or NAMES.get(lowered) or NAMES.get(lowered.removesuffix("s"))
    code = code or plain.upper()
    if code in codes:
        return code
    raise InvalidArgumentError("currency", _unknown_currency_text(plain[:_MAX_SHOWN_CHARS], codes))


def _unknown_currency_text(name: str, codes: Collection[str]) -> str:
    near = get_close_matches(name.upper(), list(codes), n=3, cutoff=0.6)
    near += [NAMES[word] for word in get_close_matches(name.lower(), NAMES, n=2, cutoff=0.8)]
    hint = f" Did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    return (
        f"{name!r} is not a currency with ECB rates.{hint} Known are: {', '.join(sorted(codes))}."
    )
