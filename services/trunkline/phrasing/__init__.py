"""The phrasing of requests: politeness, numbers in words, references, spelling, arguments. Pure.

Everything here works on the words of a text and takes time linear in its length.
"""

from trunkline.phrasing.amounts import extract_value, resolve_amounts, states_number
from trunkline.phrasing.courtesy import (
    asks_for_introduction,
    asks_for_thing,
    find_topic,
    is_courtesy,
    strip_courtesy,
    strip_present,
)
from trunkline.phrasing.direct_questions import ask_for_action
from trunkline.phrasing.ellipsis import split_ellipsis
from trunkline.phrasing.number_words import (
    MEASURE_PAIR,
    NumberPhrase,
    find_numbers,
    write_digits,
)
from trunkline.phrasing.pairs import find_pair, split_pair
from trunkline.phrasing.spelling import Vocabulary

__all__ = [
    "MEASURE_PAIR",
    "NumberPhrase",
    "Vocabulary",
    "ask_for_action",
    "asks_for_introduction",
    "asks_for_thing",
    "extract_value",
    "find_numbers",
    "find_pair",
    "find_topic",
    "is_courtesy",
    "resolve_amounts",
    "split_ellipsis",
    "split_pair",
    "states_number",
    "strip_courtesy",
    "strip_present",
    "write_digits",
]
