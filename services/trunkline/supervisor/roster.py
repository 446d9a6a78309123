"""The agents that a supervisor may ask in a turn, and how a request names them."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from trunkline.agents.calls.outcome import clip
from trunkline.core.names import NAME_PATTERN
from trunkline.supervisor.steps import Step, format_step_id
from trunkline.v1 import agent_card_pb2, event_pb2

# Names after this many characters of a request are part of its text.
_SEARCHED_CHARS = 4000
_ADDRESS = re.compile(rf"(?<![\w@])@({NAME_PATTERN})(?![\w@-])[:,]?")
# The word that makes a step wait for the step before it.
_THEN = re.compile(r"(?:^|[\s,;])then[\s,;]*$", re.IGNORECASE)
_THEN_CHARS = 20
_JOINTS = ("and", "then")
EDGE_CHARS: Final = " \t\r\n,;"
"""What is around the parts of a request."""


class Roster:
    """The cards of the agents, by name. Immutable."""

    def __init__(self, cards: Iterable[agent_card_pb2.AgentCard], *, default: str = "") -> None:
        """`default` is the agent for requests that fit no agent or several, if there is one."""
        self.cards = {card.name: card for card in sorted(cards, key=lambda card: card.name)}
        self.default = default if default in self.cards else ""
        self._names = {name.lower(): name for name in self.cards}

    def exclude(self, agents: Collection[str]) -> "Roster":
        """Return a roster without these agents."""
        if not any(agent in self.cards for agent in agents):
            return self
        cards = (card for name, card in self.cards.items() if name not in agents)
        return Roster(cards, default=self.default)

    def find_name(self, text: str) -> str:
        """Return the name of an agent that is written in upper or lower case, or ""."""
        return text if text in self.cards else self._names.get(text.lower(), "")

    def find_unknown_address(self, text: str) -> str:
        """Return the name of the unknown agent that a text begins with as @NAME, or ""."""
        match = _ADDRESS.match(text.lstrip())
        return match[1] if match and not self.find_name(match[1]) else ""

    def find_address(self, text: str) -> int | None:
        """Return the position of the first @NAME of an agent in a text, if there is one."""
        return next((match.start() for match in self._find_addresses(text)), None)

    def split_at_addresses(self, text: str) -> tuple[Step, ...]:
        """Return the steps of a request that begins with @NAME, one for each @NAME in it.

        A step waits for the step before it if "then" stands between them. Returns () if the
        request does not begin with the name of an agent.
        """
        addresses = self._find_addresses(text)
        if not addresses or text[: addresses[0].start()].strip():
            return ()
        steps: list[Step] = []
        is_after = False
        for number, match in enumerate(addresses, start=1):
            end = addresses[number].start() if number < len(addresses) else len(text)
            body = text[match.end() : end]
            after = (steps[-1].id,) if is_after else ()
            agent = self.find_name(match[1])
            is_last = number == len(addresses)
            part = body.strip(EDGE_CHARS) if is_last else strip_joints(body)
            steps.append(build_step(number, part, _address(agent), after=after))
            is_after = ends_with_then(body)
        return tuple(steps)

    def _find_addresses(self, text: str) -> list[re.Match[str]]:
        found = _ADDRESS.finditer(text[:_SEARCHED_CHARS])
        return [match for match in found if self.find_name(match[1])]


def ends_with_then(text: str) -> bool:
    """Return whether a part of a request ends with "then", so that the next part waits for it."""
    return _THEN.search(text[-_THEN_CHARS:]) is not None


def build_step(
    number: int, text: str, route: event_pb2.RouteDecided, *, after: Sequence[str] = ()
) -> Step:
    """Return a step by its number, counted from 1, with its route."""
    route.step_id = format_step_id(number)
    route.text = clip(text)
    return Step(route.step_id, text, route, tuple(after))


def strip_joints(text: str) -> str:
    """Return a part of a request without the commas and the "and" or "then" at its end."""
    # Works on positions: repeated copies would take a second for a hostile request.
    start, end = 0, _trim(text, len(text))
    while start < end and text[start] in EDGE_CHARS:
        start += 1
    while word := next((w for w in _JOINTS if _ends_with(text, end, w)), ""):
        end = _trim(text, end - len(word))
    return text[start:end]


def _ends_with(text: str, end: int, word: str) -> bool:
    return text[max(0, end - len(word) - 1) : end].lower() == f" {word}"


def _trim(text: str, end: int) -> int:
    while end and text[end - 1] in EDGE_CHARS:
        end -= 1
    return end


def _address(agent: str) -> event_pb2.RouteDecided:
    reasons = [f"the request names @{agent}"]
    score = event_pb2.AgentScore(agent=agent, confidence=1.0, reasons=reasons)
    return event_pb2.RouteDecided(agent=agent, confidence=1.0, reasons=reasons, scores=[score])
