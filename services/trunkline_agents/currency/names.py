"""Resolves names and signs of currencies to codes, and suggests codes for an unknown name."""

from collections.abc import Collection
from difflib import get_close_matches

from trunkline.errors import InvalidArgumentError

# Code, adjectives, and the nouns of the currency in the singular. The first currency
# with a noun is meant if the noun has no adjective.
_CURRENCIES = (
    ("EUR", "european", "euro"),
    ("USD", "us american", "dollar buck"),
    ("GBP", "british english uk", "pound quid sterling pound_sterling"),
    ("JPY", "japanese", "yen"),
    ("CHF", "swiss", "franc"),
    ("CAD", "canadian", "dollar"),
    ("AUD", "australian aussie", "dollar"),
    ("NZD", "new_zealand", "dollar"),
    ("HKD", "hong_kong", "dollar"),
    ("SGD", "singapore", "dollar"),
    ("CNY", "chinese", "yuan renminbi"),
    ("INR", "indian", "rupee"),
    ("KRW", "korean south_korean", "won"),
    ("SEK", "swedish", "krona kronor krone kroner crown"),
    ("NOK", "norwegian", "krone kroner crown"),
    ("DKK", "danish", "krone kroner crown"),
    ("ISK", "icelandic", "krona kronur krone crown"),
    ("CZK", "czech", "koruna crown"),
    ("PLN", "polish", "zloty"),
    ("HUF", "hungarian", "forint"),
    ("TRY", "turkish", "lira"),
    ("MXN", "mexican", "peso"),
    ("PHP", "philippine filipino", "peso"),
    ("BRL", "brazilian", "real reais"),
    ("ZAR", "south_african", "rand"),
    ("THB", "thai", "baht"),
    ("ILS", "israeli", "shekel"),
    ("MYR", "malaysian", "ringgit"),
    ("IDR", "indonesian", "rupiah"),
    ("RON", "romanian", "leu lei"),
    ("BGN", "bulgarian", "lev leva"),
    ("RUB", "russian", "rouble ruble"),
)
# "krone" alone is more often Norwegian, "krona" Swedish.
_MEANT = {"krone": "NOK", "kroner": "NOK", "krona": "SEK", "kronor": "SEK"}


def _list_names() -> dict[str, str]:
    """Return the codes of all names, in the singular."""
    names: dict[str, str] = {}
    for code, adjectives, nouns in _CURRENCIES:
        for noun in (word.replace("_", " ") for word in nouns.split()):
            names.setdefault(noun, code)
            for adjective in adjectives.split():
                names[f"{adjective.replace('_', ' ')} {noun}"] = code
            if " " in noun:
                names[noun.replace(" ", "s ", 1)] = code
    return names | _MEANT


NAMES = _list_names()
"""Names in the singular, in lower case, and their codes. The lookup removes a plural s."""
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
