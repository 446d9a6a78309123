"""Amounts that a question refers to: of a statement before it, and of an answer.

"I have £35. What is that in Canadian dollars?" asks "What is £35 in Canadian dollars?".
"""

import re
from collections.abc import Sequence

from trunkline.phrasing.number_words import write_digits

TEXT_LIMIT_CHARS = 400
"""Longer texts are texts with numbers, and not an amount with a question."""
_UNIT_WORDS = 3
_NUMBERS_LIMIT = 20

_BREAK = re.compile(
    r"(?:[.;!:]\s+|,\s+|\s+-\s+|\s[\N{EN DASH}\N{EM DASH}]\s+|\n)"
    r"(?:(?:so|and|then|now|but)\s+)?"
    r"(?=(?:please|so|what|how|can|could|convert|give|tell|find|work|is|in)\b)",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"\s*(?:what|how|who|where|when|which|why|is|are|was|does|do|can|could|would|convert|calculate"
    r"|compute|solve|find|give|tell|show|add|multiply|subtract|divide|echo|count|search)\b",
    re.IGNORECASE,
)
# A number is stated as that of something, by a verb or behind a colon.
_STATED = re.compile(
    r":|(?:'|\N{RIGHT SINGLE QUOTATION MARK})m\b"
    r"|\b(?:is|are|was|were|am|have|has|had|got|'ve|\N{RIGHT SINGLE QUOTATION MARK}ve|own|owe|owes"
    r"|earns?|needs?|paid|pays?|spent|spends?|costs?|weighs?|takes?|took|lasts?|makes?|made"
    r"|measures?|saved?|saves|scored?|received|gets?|bought|sold|drove|ran|walked|drives?|wants?"
    r"|found|left|flying|charges?|includes?|totals?|comes|won|lost|borrowed|shares?|uses?"
    r"|serves?|says?|said|came|reads?|shows?|stands|calls|starts|started|begins|ends|leaves|arrives"
    r"|ordered|fell|rose|rises|dropped|went|failed|passed|born"
    # Without a subject, these are commands: "order 2 apples".
    r"|(?:i|we|you|they)\s(?:order|start|begin|end|leave|arrive|run|drive|walk|cycle|fly|travel"
    r"|cover|earn|save|work))\b",
    re.IGNORECASE,
)
# Without a verb, numbers are stated by how they belong together: "3 shirts at 19.99 each".
_PRICED = re.compile(
    r"\d\s[a-z]+(?:\s[a-z]+)?\s(?:at|for|per|in|by)\s[$€£]?\d|\d\s(?:out\s)?of\s(?:the\s)?\d+\s"
    r"[a-z]|\beach\b|^\W*at\s\d[\d.,]*\s?(?:km|mph"
    r"|kmh|kph|%)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[$€£¥₹]?\s?(?<![\w.,])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w-]*\w)\s?[%€$£¥]?")
# One amount in two units: "5 ft 11 in", "1 hour and 20 minutes".
_MEASURE = re.compile(
    r"\b\d+\s?(?:feet|foot|ft|hours?|hrs?|h|pounds?|lbs?|stones?|kg|m)\s(?:and\s)?\d+(?:\.\d+)?\s?"
    r"(?:inch(?:es)?|in|minutes?|mins?|ounces?|oz|pounds?|lbs?|g|cm)\b",
    re.IGNORECASE,
)
_ANSWER_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_FRACTION = re.compile(r"-?\d{1,40}/\d{1,40}")
_EQUALS = re.compile(r"[=≈]")
_WORD = re.compile(r"\s*([^\W\d_]+(?:/[a-z]+)?)")
_ONE = re.compile(
    r"\b(?:that|this|it)(?:\s(?:amount|sum|number|price|distance|weight|time|much money))?"
    r"(?!['\N{RIGHT SINGLE QUOTATION MARK}\w])"
    # "What is the price in euros?"
    r"|\b(?:the|my|its)\s(?:price|cost|amount|sum|value|bill|total|fee|rent|salary|budget|distance"
    r"|weight|length|height)(?=\s(?:in|to|into)\s)",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\b(?:those|these|them)(?:\s(?:numbers|amounts|values|scores|results|figures))?\b",
    re.IGNORECASE,
)


def extract_value(answer: str) -> str:
    """Return the value of an answer, short enough for the next question.

    It is the number after the only equals sign (92.34 in `100 USD = 92.34 EUR (…)`), or the exact
    fraction before a rounded number (1/3 in `1/3 ≈ 0.333333`). Without a sign it is the whole
    answer. Commas are removed from a number.
    """
    answer = answer.strip()
    pieces = _EQUALS.split(answer)
    exact = pieces[0].strip()
    if len(pieces) == 2 and "≈" in answer and _FRACTION.fullmatch(exact):
        return f"({exact})"
    value = pieces[1].strip() if len(pieces) == 2 else answer
    number = _ANSWER_NUMBER.match(value)
    if number and (len(pieces) == 2 or value == number[0]):
        return number[0].replace(",", "")
    return answer


def states_number(text: str) -> bool:
    """Return whether a text says a number of something, and asks and orders nothing."""
    if len(text) > TEXT_LIMIT_CHARS or _REQUEST.match(text) or not _find_numbers(text):
        return False
    return bool(_STATED.search(text) or _PRICED.search(text))


def split_statement(text: str) -> tuple[str, str] | None:
    """Return a statement with a number, and the question behind it that refers to the number."""
    if len(text) > TEXT_LIMIT_CHARS:
        return None
    for mark in _BREAK.finditer(text):
        statement, question = text[: mark.start()], text[mark.end() :]
        if _REQUEST.match(statement):
            return None
        refers = _SEVERAL.search(question) or _ONE.search(question)
        if refers and _STATED.search(statement) and _find_numbers(statement):
            return statement, question
    return None


def resolve_amounts(text: str) -> Sequence[str]:
    """Return the question with the stated amount in place of its reference; [] if there is none.

    The words behind a number may name its unit: the texts differ in how many are taken.
    """
    parts = split_statement(text) or split_statement(write_digits(text))
    if parts is None:
        return []
    statement, question = parts
    if measure := _MEASURE.search(statement):
        # "I'm 5 ft 11 in tall, how many cm is that"
        return [_replace(_ONE, question, measure[0])]
    numbers = _find_numbers(statement)
    if len(numbers) > 1:
        listed = ", ".join(number[0].strip() for number in numbers)
        texts = [_replace(_SEVERAL, question, listed)] if _SEVERAL.search(question) else []
    else:
        (number,) = numbers
        reference = _ONE if _ONE.search(question) else _SEVERAL
        texts = [
            _replace(reference, question, amount) for amount in _read_amounts(statement, number)
        ]
    return texts


def _find_numbers(statement: str) -> list[re.Match[str]]:
    numbers = list(_NUMBER.finditer(statement))
    return numbers if len(numbers) <= _NUMBERS_LIMIT else []


def _read_amounts(statement: str, number: re.Match[str]) -> list[str]:
    """Return the number with some to none of the words behind it, which may name its unit."""
    amounts = [number[0].strip()]
    end = number.end()
    while len(amounts) <= _UNIT_WORDS and (word := _WORD.match(statement, end)):
        end = word.end()
        amounts.append(statement[number.start() : end].strip())
    # The longest first: "350 degrees" may be an angle, and a number alone another one.
    return amounts[::-1]


def _replace(reference: re.Pattern[str], question: str, amount: str) -> str:
    return reference.sub(lambda _: amount, question, count=1)
