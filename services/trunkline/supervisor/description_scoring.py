"""Scores requests by the descriptions of skills that have no tags, such as those of tools. Pure.

A skill fits a request that says words of its name, if its description explains most of the other
words. A tag in the request weighs more, unless the request says the whole name of the skill and the
description explains each other word, or three quarters of them beside the value of an argument.
"""

from dataclasses import dataclass
from typing import Final, Self

from trunkline.phrasing.content_words import (
    fits_description,
    share_of,
    split_lower_words,
    stem_words,
)
from trunkline.phrasing.plain_values import find_values_and_words
from trunkline.phrasing.schema_arguments import split_name
from trunkline.v1 import agent_card_pb2

BY_DESCRIPTION_TAG: Final = "by description"
"""A skill with this tag is matched by its name and description, and not by its other tags."""

DESCRIPTION_CHARS: Final = 1000
"""Text of a description after this many characters is not searched."""
DESCRIPTION_POINTS: Final = 1.9
"""The most for a description that fits in part: one tag of another agent leads by a margin."""
EXACT_POINTS: Final = 3.0
"""For a description that fits in full: it leads one tag, and two tags lead it, by a margin."""
_EXPLAINED_BESIDE_VALUES: Final = 0.75


@dataclass(frozen=True, slots=True)
class DescribedRequest:
    """A request prepared for the comparison with descriptions, once for all skills."""

    words: frozenset[str]
    has_values: bool

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Prepare a text. Numbers, dates and quoted text are values, and no words."""
        plain, number_words = find_values_and_words(text)
        # "one" is mostly a pronoun.
        values = [*plain, *(word for word in number_words if word.text != "1")]
        outside = list(text)
        for value in values:
            outside[value.start : value.end] = " " * (value.end - value.start)
        return cls(stem_words(split_lower_words("".join(outside))), bool(values))


@dataclass(frozen=True, slots=True)
class SkillDescription:
    """The words of a skill's id, name and description."""

    names: tuple[frozenset[str], ...]
    """The words of its id and of its name."""
    vocabulary: frozenset[str]
    openers: frozenset[str]
    """The first words of its id, name and description, which are its verb if it has one."""

    @classmethod
    def from_skill(cls, skill: agent_card_pb2.AgentSkill, agent: str) -> Self:
        """Prepare a skill of an agent."""
        _, _, skill_id = skill.id.rpartition(":")
        texts = (skill_id, skill.name)
        names = tuple(words for text in texts if (words := stem_words(split_name(text))))
        described = split_lower_words(skill.description[:DESCRIPTION_CHARS])
        vocabulary = stem_words([*described, *split_name(agent)]).union(*names)
        firsts = [words[:1] for words in (*map(split_name, texts), described)]
        return cls(names, vocabulary, stem_words(word for words in firsts for word in words))

    def begins_with(self, word: str) -> bool:
        """Return whether a request for it may begin with a word: "translate", of "Translates …"."""
        return bool(stem_words([word.casefold()]) & self.openers)

    def score(self, request: DescribedRequest) -> float:
        """Return the points of the skill; 0: it does not fit."""
        named = max((share_of(words, request.words) for words in self.names), default=0.0)
        explained = share_of(request.words, self.vocabulary)
        if not fits_description(named=named, explained=explained, has_argument=request.has_values):
            return 0.0
        # A word that is not explained may be the value of an argument: "in zone middle".
        least_explained = _EXPLAINED_BESIDE_VALUES if request.has_values else 1.0
        # One word alone may mean anything.
        is_exact = explained >= least_explained and any(
            len(words) > 1 and words <= request.words for words in self.names
        )
        return EXACT_POINTS if is_exact else DESCRIPTION_POINTS * (named + explained) / 2
