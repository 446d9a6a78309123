"""Puts one answer together from what the steps left. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trunkline.supervisor.planning.routing import SEARCHED_CHARS, Router, contenders
from trunkline.supervisor.planning.splitting import MAX_STEPS
from trunkline.supervisor.steps import Outcome, StateValue, Step, failed
from trunkline.tasks.lifecycle import State
from trunkline.v1 import agent_card_pb2, event_pb2


@dataclass(frozen=True, slots=True)
class Answer:
    """How the turn is to end."""

    state: StateValue
    text: str = ""
    """The whole answer, or what is left of it; empty when there is no text."""
    said: str = ""
    """What the task's last status says: a question, or why it failed."""


def synthesis(steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> Answer:
    """Return the answers of the steps in the plan's order; failed ones are named."""
    ended = [
        (step, outcomes.get(step.id) or failed(step.agent, "it was not run")) for step in steps
    ]
    lines = [
        _failure(step, outcome) if outcome.is_failure else outcome.text
        for step, outcome in ended
        if not outcome.is_waiting
    ]
    text = "\n".join(line for line in lines if line)
    has_answer = any(outcome.is_answer for _, outcome in ended)
    questions = [outcome for _, outcome in ended if outcome.is_waiting]
    if questions:
        # Those without a text ask for approvals, which the task itself puts into words.
        waiting = next((one for one in questions if one.text), questions[0])
        if has_answer:
            return Answer(waiting.state, text, waiting.text)
        return Answer(waiting.state, "", "\n".join(filter(None, (text, waiting.text))))
    if not has_answer:
        return Answer(State.TASK_STATE_FAILED, "", text)
    if not any(outcome.text for _, outcome in ended if outcome.is_answer):
        failures = text
        if not any(outcome.has_files for _, outcome in ended):
            names = " and ".join(outcome.agent for _, outcome in ended if outcome.is_answer)
            return Answer(State.TASK_STATE_COMPLETED, failures, f"{names} left no answer.")
        return Answer(State.TASK_STATE_COMPLETED, failures)
    return Answer(State.TASK_STATE_COMPLETED, text)


def failures(steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each step that failed."""
    ended = [(step, outcomes[step.id]) for step in steps if step.id in outcomes]
    return [_failure(step, outcome) for step, outcome in ended if outcome.is_failure]


def nobody_fits(steps: Sequence[Step], router: Router) -> str:
    """Return the question to ask when no step has an agent: what is wrong, what would work."""
    level = contenders(steps[0].route)
    unknown = router.unknown_address(steps[0].text)
    if unknown:
        problem = f"No agent named {unknown!r} can be asked here."
    elif len(level) > 1:
        names = ", ".join(f"@{name}" for name in level)
        return f"Several agents could take this equally well. Begin with one of: {names}."
    elif len(steps[0].text) > SEARCHED_CHARS:
        problem = (
            f"This is {len(steps[0].text):,} characters long, and the first {SEARCHED_CHARS:,} do "
            "not say who could answer it; ask more briefly, or begin with an agent's @name."
        )
    else:
        problem = "No agent here can answer this."
    if not router.cards:
        return f"{problem} There is none to route to; start one and ask again."
    lines = [f"- {_offer(card)}" for card in router.cards.values()]
    return "\n".join([problem, "These would work:", *lines])


def too_many(count: int) -> str:
    """Return what to say to a request of more steps than a plan may have."""
    return f"These are {count} questions; ask at most {MAX_STEPS} at once."


def plan_text(steps: Sequence[Step]) -> str:
    """Return the plan for people: a numbered line for each step."""
    return "\n".join(
        f"{number}. {step.agent or 'nobody'}: {step.line}"
        for number, step in enumerate(steps, start=1)
    )


def plan_steps_of(steps: Sequence[Step]) -> list[event_pb2.PlanStep]:
    """Return the plan as the journal has it: with all that it takes to run it."""
    return [
        event_pb2.PlanStep(
            step_id=step.id, text=step.text or step.planned, agent=step.agent, after=step.after
        )
        for step in steps
    ]


def second_choice(step: Step, outcome: Outcome) -> Step | None:
    """Return a failed step for the next best agent, if one scored at least half as much."""
    failures = (State.TASK_STATE_FAILED, State.TASK_STATE_REJECTED)
    if outcome.state not in failures or not step.agent:
        return None
    points = {score.agent: score.score for score in step.route.scores}
    for score in step.route.scores:
        if score.agent != step.agent and score.score and 2 * score.score >= points[step.agent]:
            route = event_pb2.RouteDecided()
            route.CopyFrom(step.route)
            route.agent, route.confidence = score.agent, score.confidence
            route.reasons[:] = [f"{step.agent} could not do it", *score.reasons]
            return replace(step, route=route)
    return None


def _failure(step: Step, outcome: Outcome) -> str:
    reason = " ".join(outcome.text.split()).removesuffix(".") or "it gave no reason"
    by = f" (agent {outcome.agent})" if outcome.agent else ""
    return f"Could not answer {step.quoted}: {reason}{by}."


def _offer(card: agent_card_pb2.AgentCard) -> str:
    examples = [example for skill in card.skills for example in skill.examples]
    return f'{card.name}: "{examples[0]}"' if examples else f"{card.name}: {card.description}"
