"""Parses a model's plan, and renders it while it streams. Pure."""

import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from trunkline.agents.reasoning.models import UnusableReplyError
from trunkline.agents.reasoning.toolbox import ToolSpec, build_tool_spec, object_schema
from trunkline.agents.reasoning.turn_result import ASK_USER, ASK_USER_PROPERTIES
from trunkline.supervisor.planning import MAX_STEPS
from trunkline.supervisor.roster import Roster, build_step
from trunkline.supervisor.steps import LINE_CHARS, Step, format_step_id, summary_line
from trunkline.v1 import event_pb2

MAKE_PLAN: Final = "make_plan"
_LONGEST_TEXT = 32 * 1024
_DIGITS = re.compile(r"\d{1,3}")
# Other forms in which models write the placeholder {1}.
_PLACEHOLDER = re.compile(
    r"\{\{?\s{0,3}(?:(?:step|result)[-_ ]?)?(\d{1,3})(?:\.\w{1,20})?\s{0,3}\}?\}"
)


def build_plan_tools(agents: Sequence[str]) -> list[ToolSpec]:
    """Build the tools by which a model gives its plan or asks the user."""
    step = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": list(agents)},
            "text": {"type": "string", "description": "What to ask the agent, complete."},
            "after": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "Numbers of the steps whose results it needs; none: leave it out.",
            },
        },
        "required": ["agent", "text"],
    }
    steps = {"type": "array", "items": step, "minItems": 1, "maxItems": MAX_STEPS}
    return [
        build_tool_spec(MAKE_PLAN, "Say which agent does what.", object_schema({"steps": steps})),
        build_tool_spec(
            ASK_USER, "Ask the user, where no plan can be made.", object_schema(ASK_USER_PROPERTIES)
        ),
    ]


def parse_plan(
    arguments: Mapping[str, Any], request: str, roster: Roster, *, planner: str
) -> tuple[Step, ...]:
    """Parse the steps in a model's tool call.

    Repairs small mistakes: the case of an agent's name, the form of a step's number, a needed
    result without a placeholder.

    Raises:
        UnusableReplyError: the plan can't be run.
    """
    items = arguments.get("steps")
    if not isinstance(items, list) or not items:
        raise UnusableReplyError("it has no steps")
    if len(items) > MAX_STEPS:
        raise UnusableReplyError(f"it has {len(items)} steps; at most {MAX_STEPS} may be")
    if len(items) == 1 and isinstance(items[0], dict) and not items[0].get("text"):
        items = [{**items[0], "text": request}]
    steps = tuple(
        _parse_step(number, item, len(items), roster, planner)
        for number, item in enumerate(items, start=1)
    )
    try:
        TopologicalSorter({step.id: step.after for step in steps}).prepare()
    except CycleError:
        raise UnusableReplyError("its steps wait for each other") from None
    return steps


def render_partial_plan(arguments: Mapping[str, Any], roster: Roster) -> str:
    """Render the plan for people, as far as an incomplete tool call contains it.

    The text for a longer prefix of the call begins with the text for a shorter one.
    """
    items = arguments.get("steps")
    items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    lines: list[str] = []
    for number, item in enumerate(items, start=1):
        agent, text = item.get("agent"), item.get("text")
        if not isinstance(agent, str) or not isinstance(text, str):
            break
        line = summary_line(text)
        if number == len(items):
            # The last item may be incomplete: an agent's name may still change, a text only grows.
            if list(item)[-1] == "agent":
                break
            line = line[: LINE_CHARS - 1]
        lines.append(f"{number}. {_normalize_agent(agent, roster)}: {line}")
    return "\n".join(lines)


def _parse_step(number: int, item: object, count: int, roster: Roster, planner: str) -> Step:
    if not isinstance(item, dict):
        raise UnusableReplyError(f"step {number} is not an object")
    agent = _normalize_agent(str(item.get("agent", "")), roster)
    if agent not in roster.cards:
        names = ", ".join(roster.cards)
        raise UnusableReplyError(f"step {number} is for {agent!r}; there are only: {names}")
    text = item.get("text")
    if not isinstance(text, str) or not text.strip():
        raise UnusableReplyError(f"step {number} does not say what to ask {agent}")
    if len(text) > _LONGEST_TEXT:
        raise UnusableReplyError(f"the text of step {number} is too long")
    text, numbers = _normalize_placeholders(text.strip(), number, count)
    after = sorted({*numbers, *_parse_step_numbers(number, item.get("after"), count)})
    placeholders = (f"{{{earlier}}}" for earlier in after if earlier not in numbers)
    text = "\n".join([text, *placeholders])
    route = event_pb2.RouteDecided(agent=agent, reasons=[f"{planner} planned it"])
    return build_step(number, text, route, after=tuple(map(format_step_id, after)))


def _normalize_agent(agent: str, roster: Roster) -> str:
    name = agent.strip().removeprefix("@")
    return roster.find_name(name) or name.lower()


def _normalize_placeholders(text: str, number: int, count: int) -> tuple[str, set[int]]:
    """Return the text with placeholders {1}, {2}, … for results, and their numbers."""
    numbers: set[int] = set()

    def replace(match: re.Match[str]) -> str:
        earlier = int(match[1])
        if not 1 <= earlier <= count or earlier == number:
            return match[0]
        numbers.add(earlier)
        return f"{{{earlier}}}"

    return _PLACEHOLDER.sub(replace, text), numbers


def _parse_step_numbers(number: int, after: object, count: int) -> set[int]:
    """Return the numbers of the steps that a step waits for. Accepts numbers in strings."""
    numbers: set[int] = set()
    for item in after if isinstance(after, list) else [] if after is None else [after]:
        digits = _DIGITS.search(str(item))
        earlier = int(digits[0]) if digits else 0
        if not 1 <= earlier <= count or earlier == number:
            raise UnusableReplyError(f"step {number} waits for {item!r}, which is not another step")
        numbers.add(earlier)
    return numbers
