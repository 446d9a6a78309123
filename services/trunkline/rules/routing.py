"""Routes a request to an agent by the tags and examples of the agents' cards. Pure.

A tag is a phrase of words, a mark such as + or € beside a digit, or words with # for a number. It
matches literally, except that case does not count.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from trunkline.supervisor.roster import Roster
from trunkline.v1 import agent_card_pb2, event_pb2

SEARCHED_CHARS: Final = 4000
"""Text after this many characters is not searched."""
_TAG_POINTS: Final = 1.0
_SKILL_POINTS: Final = 1.5
# A smaller lead over the next agent is a tie.
_MARGIN_POINTS: Final = 0.5
_GOOD_CONFIDENCE: Final = 0.5
# The tags of such a skill count only as the first word of a request.
_COMMAND_TAG: Final = "command"
# A skill with this tag takes questions that no agent's tags fit.
_OPEN_QUESTIONS_TAG: Final = "open questions"
# A skill with this tag, such as of a tool, is found by its name alone.
_BY_DESCRIPTION_TAG: Final = "by description"
_MEANINGS: Final = frozenset((_COMMAND_TAG, _OPEN_QUESTIONS_TAG, _BY_DESCRIPTION_TAG))

# Letters and digits are separate words, so that USD is found in "100USD".
_WORD = re.compile(r"[^\W\d_]+|\d+")
_TAG_WORD = re.compile(r"[^\W\d_]+|\d+|#")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Between a number and another operand.
_OPERATORS: Final = frozenset("+*^=<>\N{MULTIPLICATION SIGN}÷")
# Prose joins words by these, so that they count only between two numbers.
_JOINING_MARKS: Final = frozenset("-/")
# Marks in dates and addresses are not operators.
_NO_MARKS = re.compile(r"https?://\S{1,500}|\b\d{4}-\d\d?-\d\d?\b")
_QUESTION = re.compile(
    r"\s*(?:who|whom|whose|what|when|where|why|which|how|is|are|was|were|do|does|did|can|could|may"
    r"|must|should|will|would|has|have)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request prepared for the search, once for all agents."""

    phrase: str
    numbered: str
    """The phrase, with # for each number."""
    marks: str
    """The text without dates and addresses, whose marks are not operators."""
    first_word: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        words = _WORD.findall(text.casefold())
        numbered = _WORD.findall(_NUMBER.sub("0", text.casefold()))
        return cls(
            _join(words),
            _join(["#" if word.isdecimal() else word for word in numbered]),
            _NO_MARKS.sub(" ", text),
            words[0] if words else "",
        )


@dataclass(frozen=True, slots=True)
class _Tag:
    text: str
    phrase: str
    mark: re.Pattern[str] | None

    @classmethod
    def parse(cls, text: str) -> Self:
        if words := _TAG_WORD.findall(text.casefold()):
            return cls(text, _join(words), None)
        return cls(text, "", _compile_mark(text.strip()))

    def is_in(self, request: _Request) -> bool:
        if self.mark is not None:
            return self.mark.search(request.marks) is not None
        return self.phrase in (request.numbered if "#" in self.phrase else request.phrase)


@dataclass(frozen=True, slots=True)
class _Skill:
    name: str
    phrases: tuple[str, ...]
    """The names of the skill in a request."""
    tags: tuple[_Tag, ...]
    is_command: bool

    @classmethod
    def from_card(cls, skill: agent_card_pb2.AgentSkill) -> Self:
        is_command = _COMMAND_TAG in skill.tags
        _, _, skill_id = skill.id.rpartition(":")
        names = [skill.name, skill_id] if _BY_DESCRIPTION_TAG in skill.tags else [skill.name]
        phrases = (_join(_WORD.findall(_split_case(name).casefold())) for name in names)
        return cls(
            name=skill.name or skill.id,
            phrases=() if is_command else tuple(phrase for phrase in phrases if phrase.strip()),
            tags=tuple(
                _Tag.parse(tag)
                for tag in dict.fromkeys(skill.tags)
                if tag.strip() and tag not in _MEANINGS
            ),
            is_command=is_command,
        )

    def find_tags(self, request: _Request) -> list[str]:
        if self.is_command:
            return [tag.text for tag in self.tags if tag.phrase == f" {request.first_word} "]
        return [tag.text for tag in self.tags if tag.is_in(request)]


class Router:
    """Routes by the cards of a roster."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._skills = {
            name: [_Skill.from_card(skill) for skill in card.skills]
            for name, card in roster.cards.items()
        }
        self._examples: dict[str, set[str]] = {}
        for name, card in roster.cards.items():
            for skill in card.skills:
                for example in skill.examples:
                    self._examples.setdefault(_read_example(example), set()).add(name)
        open_agents = [
            name
            for name, card in roster.cards.items()
            if any(_OPEN_QUESTIONS_TAG in skill.tags for skill in card.skills)
        ]
        # With several, it is open which of them is meant.
        self._open_agent = open_agents[0] if len(open_agents) == 1 else ""

    def route(self, text: str) -> event_pb2.RouteDecided:
        """Score every agent, and choose the clear winner, if there is any."""
        text = text[:SEARCHED_CHARS]
        request = _Request.from_text(text)
        scores, commanded = self._score(request)
        best = scores[0] if scores else event_pb2.AgentScore()
        decision = event_pb2.RouteDecided(
            confidence=best.confidence, reasons=best.reasons, scores=scores
        )
        known = self._examples.get(_read_example(text), ())
        if len(commanded) == 1:
            decision.agent = best.agent
        elif len(known) == 1:
            (decision.agent,) = known
            decision.confidence = 1.0
            decision.reasons[:] = ["the request is one of its examples"]
        elif best.confidence >= _GOOD_CONFIDENCE:
            decision.agent = best.agent
        else:
            tied = find_tied(decision)
            problem = f"{' and '.join(tied)} fit equally well" if tied else "no tag occurs in it"
            decision.reasons[:] = [problem]
        return decision

    def is_command(self, text: str) -> bool:
        """Return whether the first word of a text is the command of an agent."""
        request = _Request.from_text(text[:SEARCHED_CHARS])
        skills = (skill for skills in self._skills.values() for skill in skills)
        return any(skill.is_command and skill.find_tags(request) for skill in skills)

    def apply_open_question(self, text: str, decision: event_pb2.RouteDecided) -> None:
        """Route a question that fits no agent to the agent that takes any, if there is one."""
        is_question = text.rstrip().endswith("?") or _QUESTION.match(text)
        if self._open_agent and is_question and not decision.agent and not find_tied(decision):
            decision.agent = self._open_agent
            decision.reasons.append("it takes questions that no other agent fits")

    def _score(self, request: _Request) -> tuple[list[event_pb2.AgentScore], list[str]]:
        """Return the scores, best first, and the agents that the first word commands."""
        found: list[tuple[float, str, list[str]]] = []
        commanded: list[str] = []
        for agent, skills in self._skills.items():
            tags: set[str] = set()
            reasons: list[str] = []
            points = 0.0
            for skill in skills:
                matching = skill.find_tags(request)
                if skill.is_command and matching:
                    commanded.append(agent)
                if not matching and not any(name in request.phrase for name in skill.phrases):
                    continue
                points += _SKILL_POINTS
                tags.update(tag.casefold() for tag in matching)
                reasons.append(f"skill {skill.name!r}: {', '.join(matching) or 'its name'}")
            found.append((points + len(tags) * _TAG_POINTS, agent, reasons))
        is_commanded = len(set(commanded)) == 1
        found.sort(key=lambda each: (each[1] not in commanded, -each[0], each[1]))
        best, second = sorted((0.0, 0.0, *(points for points, _, _ in found)), reverse=True)[:2]
        scores = []
        for points, agent, reasons in found:
            rival = second if points == best else best
            confidence = round(points / (points + rival + _MARGIN_POINTS), 2)
            if is_commanded:
                confidence = float(agent in commanded)
            scores.append(
                event_pb2.AgentScore(
                    agent=agent, score=points, confidence=confidence, reasons=reasons
                )
            )
        return scores, list(dict.fromkeys(commanded))


def find_tied(decision: event_pb2.RouteDecided) -> list[str]:
    """Return the agents whose scores are near the best; [] if nothing matched."""
    top = decision.scores[0].score if decision.scores else 0.0
    return [
        score.agent
        for score in decision.scores
        if score.score and top - score.score <= _MARGIN_POINTS
    ]


def _compile_mark(mark: str) -> re.Pattern[str]:
    sign = re.escape(mark)
    if mark in _JOINING_MARKS:
        return re.compile(rf"[\d)]\s?{sign}\s?[\d(]")
    if mark in _OPERATORS:
        return re.compile(rf"[\d)]\s?{sign}\s?[\w(]|\w\s?{sign}\s?[\d(]")
    return re.compile(rf"[\d)]\s?{sign}|{sign}\s?[\d(]")


def _join(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


def _split_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)


def _read_example(text: str) -> str:
    """Return a text in lower case with a sign for each number, without the last punctuation."""
    return " ".join(_NUMBER.sub("#", text.casefold()).rstrip(" .!?").split())
