"""The phrasing of requests: politeness, numbers in words, and arguments of tools. Pure.

Everything here works on the words of a text and takes time linear in its length.
"""

from trunkline.phrasing.courtesy import asks_for_introduction, strip_courtesy
from trunkline.phrasing.number_words import NumberPhrase, find_numbers, write_digits

__all__ = [
    "NumberPhrase",
    "asks_for_introduction",
    "find_numbers",
    "strip_courtesy",
    "write_digits",
]
