"""Resolves names and signs of currencies to codes, and suggests codes for an unknown name."""

from collections.abc import Collection
from difflib import get_close_matches

from trunkline.errors import InvalidArgumentError

# In the singular: the lookup removes a plural s.
NAMES = {
    "euro": "EUR",
    "dollar": "USD",
    "us dollar": "USD",
    "american dollar": "USD",
    "buck": "USD",
    "quid": "GBP",
    "canadian dollar": "CAD",
    "australian dollar": "AUD",
    "new zealand dollar": "NZD",
    "hong kong dollar": "HKD",
    "singapore dollar": "SGD",
    "pound": "GBP",
    "british pound": "GBP",
    "pound sterling": "GBP",
    "sterling": "GBP",
    "yen": "JPY",
    "japanese yen": "JPY",
    "franc": "CHF",
    "swiss franc": "CHF",
    "yuan": "CNY",
    "renminbi": "CNY",
    "rupee": "INR",
    "indian rupee": "INR",
    "won": "KRW",
    "swedish krona": "SEK",
    "swedish kronor": "SEK",
    "norwegian krone": "NOK",
    "norwegian kroner": "NOK",
    "danish krone": "DKK",
    "danish kroner": "DKK",
    "czech koruna": "CZK",
    "krona": "SEK",
    "krone": "NOK",
    "koruna": "CZK",
    "polish zloty": "PLN",
    "chinese yuan": "CNY",
    "hungarian forint": "HUF",
    "peso": "MXN",
    "south african rand": "ZAR",
    "south korean won": "KRW",
    "korean won": "KRW",
    "thai baht": "THB",
    "israeli shekel": "ILS",
    "icelandic krona": "ISK",
    "zloty": "PLN",
    "forint": "HUF",
    "lira": "TRY",
    "turkish lira": "TRY",
    "real": "BRL",
    "brazilian real": "BRL",
    "mexican peso": "MXN",
    "rand": "ZAR",
    "baht": "THB",
    "shekel": "ILS",
    "ringgit": "MYR",
    "rouble": "RUB",
    "ruble": "RUB",
}
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
