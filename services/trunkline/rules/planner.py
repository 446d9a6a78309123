"""Plans a request by the cards of the agents: it is split where its parts are for other agents."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from trunkline.calls.outcome import Outcome
from trunkline.printable import to_plain_line
from trunkline.rules.routing import SEARCHED_CHARS, Router, find_tied
from trunkline.supervisor.example_index import ExampleIndex
from trunkline.supervisor.planning import PlanResult
from trunkline.supervisor.roster import (
    EDGE_CHARS,
    Roster,
    build_step,
    ends_with_then,
    strip_joints,
)
from trunkline.supervisor.steps import Step
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import agent_card_pb2, event_pb2

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

# A request with more separators is a text and no list of questions.
_MAX_FRAGMENTS: Final = 48
_SEPARATOR: Final = re.compile(
    r"[;\n]\s*(?:and\s+)?(?P<a>then\s)?|,?\s+and\s+(?P<b>then\s)?|,\s+(?P<c>then\s)?"
    r"|\s(?P<d>then)\s|(?<=[?.!])\s+(?P<e>then\s)?",
    re.IGNORECASE,
)
_MOST_EXAMPLES: Final = 8
_EXAMPLE_CHARS: Final = 200
ADVICE: Final = 'for requests in other words, set a model: `model = "provider:name"`'
"""The action for a request that the rules do not match."""


@dataclass(slots=True)
class _Piece:
    """A part of the request, from `begin` to `end`, and its route."""

    begin: int
    end: int
    is_after: bool
    route: event_pb2.RouteDecided


class RulesPlanner:
    """The planner of a mesh without a model. It merges no answers."""

    name = "rules"
    is_model = False

    def __init__(self, examples: ExampleIndex | None = None) -> None:
        """With `examples`, a request that fits no tag goes to the agent of the nearest example."""
        self._examples = examples
        self._routers: WeakKeyDictionary[Roster, Router] = WeakKeyDictionary()

    async def load(self) -> None:
        """Return at once, because there is no model to load."""

    def predict(self, request: str, roster: Roster) -> Set[str]:
        """Return the agents of the plan."""
        return {step.agent for step in self._split(request, roster) if step.agent}

    async def plan(
        self,
        request: str,
        roster: Roster,
        writer: PlanWriter,
        *,
        last_agent: str = "",
        earlier_messages: "Sequence[BaseMessage]" = (),
        meter: UsageMeter | None = None,
    ) -> PlanResult:
        """Return the steps of a request, or a question that lists the possible requests."""
        steps = self._split(request, roster, await self._find_nearest(request, roster))
        if any(step.agent for step in steps):
            return PlanResult(steps)
        return PlanResult(question=_explain(steps[0], roster), route=steps[0].route)

    async def write_answer(
        self,
        request: str,
        results: Sequence[tuple[Step, Outcome]],
        on_text: Callable[[str], Awaitable[None]],
        on_discard: Callable[[], Awaitable[None]],
        *,
        meter: UsageMeter | None = None,
    ) -> str:
        """Return "": the answers stay as they are."""
        return ""

    async def _find_nearest(self, request: str, roster: Roster) -> event_pb2.RouteDecided | None:
        """Return the route by meaning of a request that matches neither a name nor a tag."""
        if self._examples is None or roster.find_address(request) is not None:
            return None
        route = self._find_router(roster).route(request)
        if route.agent or find_tied(route):
            return None
        return await self._examples.route(request, roster)

    def _find_router(self, roster: Roster) -> Router:
        router = self._routers.get(roster)
        if router is None:
            router = self._routers[roster] = Router(roster)
        return router

    def _split(
        self, request: str, roster: Roster, nearest: event_pb2.RouteDecided | None = None
    ) -> tuple[Step, ...]:
        """Return the steps of a request. `nearest` is the route of a part that fits no agent."""
        router = self._find_router(roster)
        address = roster.find_address(request)
        unaddressed = request if address is None else request[:address]
        steps: list[Step] = []
        has_other = address is None or unaddressed.strip(EDGE_CHARS)
        for piece in _split_pieces(unaddressed, router) if has_other else ():
            text = unaddressed[piece.begin : piece.end].strip(EDGE_CHARS)
            if piece.end < len(request):
                text = strip_joints(text)
            if not piece.route.agent and nearest is not None:
                piece.route = nearest
            router.apply_open_question(text, piece.route)
            if not piece.route.agent and roster.default:
                piece.route.agent = roster.default
                piece.route.reasons.append("this is the default agent")
            after = (steps[-1].id,) if piece.is_after and steps else ()
            steps.append(build_step(len(steps) + 1, text, piece.route, after=after))
        is_after = bool(steps) and ends_with_then(unaddressed)
        for step in () if address is None else roster.split_at_addresses(request[address:]):
            after = (steps[-1].id,) if steps and (step.after or is_after) else ()
            steps.append(build_step(len(steps) + 1, step.text, step.route, after=after))
            is_after = False
        return tuple(steps)


def _split_pieces(text: str, router: Router) -> list[_Piece]:
    """Return the parts of a request: each is a command, or for another agent than the one before.

    Any other part belongs to the part before it. If the first part fits no agent, the request
    stays whole.
    """
    whole = [_Piece(0, len(text), is_after=False, route=router.route(text))]
    fragments = list(_find_fragments(text)) if len(text) <= SEARCHED_CHARS else []
    if not 1 < len(fragments) <= _MAX_FRAGMENTS:
        return whole
    pieces: list[_Piece] = []
    for begin, end, is_after in fragments:
        part = text[begin:end]
        route = router.route(part)
        is_own = route.agent and (
            not pieces or route.agent != pieces[-1].route.agent or router.is_command(part)
        )
        if not pieces or (is_own and pieces[-1].route.agent):
            pieces.append(_Piece(begin, end, is_after and bool(pieces), route))
        else:
            pieces[-1].end = end
            if not pieces[-1].route.agent:
                pieces[-1].route = router.route(text[pieces[-1].begin : end])
    return pieces if len(pieces) > 1 and all(piece.route.agent for piece in pieces) else whole


def _find_fragments(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the parts between separators, and whether "then" stands before each."""
    begin, is_after = 0, False
    for match in _SEPARATOR.finditer(text):
        if text[begin : match.start()].strip():
            yield begin, match.start(), is_after
            is_after = False
        is_after = is_after or any(match.groups())
        begin = match.end()
    if text[begin:].strip():
        yield begin, len(text), is_after


def _explain(step: Step, roster: Roster) -> str:
    """Return the reply to a request that fits no agent, in one line."""
    if tied := find_tied(step.route):
        names = ", ".join(f"@{name}" for name in tied)
        return f"Several agents could take this equally well. Begin with one of: {names}."
    known = {name: _find_example(card) for name, card in roster.cards.items()}
    asked = [f'{name}: "{example}"' for name, example in known.items() if example]
    others = [f"@{name} …" for name, example in known.items() if not example]
    shown = "; ".join((asked + others)[:_MOST_EXAMPLES])
    return (
        "I am the built-in rules model, and no agent's tags or examples match this. "
        f"I can pass on: {shown}. Name an agent as @NAME, or, {ADVICE}."
    )


def _find_example(card: agent_card_pb2.AgentCard) -> str:
    examples = (example for skill in card.skills for example in skill.examples)
    return to_plain_line(next(examples, ""), _EXAMPLE_CHARS)
