"""Puts one answer together from what the steps left. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trunkline.supervisor.request_splitter import MAX_STEPS
from trunkline.supervisor.router import SEARCHED_CHARS, Router, top_agents
from trunkline.supervisor.step_runner import SupervisorTurn
from trunkline.supervisor.steps import Outcome, StateValue, Step, failed_outcome
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2, artifact_pb2, event_pb2


@dataclass(frozen=True, slots=True)
class CombinedAnswer:
    """How the turn is to end."""

    state: StateValue
    text: str = ""
    """The whole answer, or what is left of it; empty when there is no text."""
    status_text: str = ""
    """What the task's last status says: a question, or why it failed."""


def combine_outcomes(steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> CombinedAnswer:
    """Return the answers of the steps in the plan's order; failed ones are named."""
    ended = [
        (step, outcomes.get(step.id) or failed_outcome(step.agent, "it was not run"))
        for step in steps
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
            return CombinedAnswer(waiting.state, text, waiting.text)
        return CombinedAnswer(waiting.state, "", "\n".join(filter(None, (text, waiting.text))))
    if not has_answer:
        return CombinedAnswer(State.TASK_STATE_FAILED, "", text)
    if not any(outcome.text for _, outcome in ended if outcome.is_answer):
        failures = text
        if not any(outcome.has_files for _, outcome in ended):
            names = " and ".join(outcome.agent for _, outcome in ended if outcome.is_answer)
            return CombinedAnswer(State.TASK_STATE_COMPLETED, failures, f"{names} left no answer.")
        return CombinedAnswer(State.TASK_STATE_COMPLETED, failures)
    return CombinedAnswer(State.TASK_STATE_COMPLETED, text)


def list_failures(steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each step that failed."""
    ended = [(step, outcomes[step.id]) for step in steps if step.id in outcomes]
    return [_failure(step, outcome) for step, outcome in ended if outcome.is_failure]


def no_agent_question(steps: Sequence[Step], router: Router) -> str:
    """Return the question to ask when no step has an agent: what is wrong, what would work."""
    level = top_agents(steps[0].route)
    unknown = router.find_unknown_address(steps[0].text)
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


def too_many_steps_question(count: int) -> str:
    """Return what to say to a request of more steps than a plan may have."""
    return f"These are {count} questions; ask at most {MAX_STEPS} at once."


def render_plan(steps: Sequence[Step]) -> str:
    """Return the plan for people: a numbered line for each step."""
    return "\n".join(
        f"{number}. {step.agent or 'nobody'}: {step.line}"
        for number, step in enumerate(steps, start=1)
    )


def build_plan_steps(steps: Sequence[Step]) -> list[event_pb2.PlanStep]:
    """Return the plan as the journal has it: with all that it takes to run it."""
    return [
        event_pb2.PlanStep(
            step_id=step.id, text=step.text or step.plan_text, agent=step.agent, after=step.after
        )
        for step in steps
    ]


def find_second_choice(step: Step, outcome: Outcome) -> Step | None:
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


# The answer is written in pieces of this size, so that each fits a frame of the wire.
_PIECE_CHARS = 32 * 1024
_NAME = "answer"


async def rewrite_answer(
    turn: SupervisorTurn,
    answer: CombinedAnswer,
    steps: Sequence[Step],
    outcomes: Mapping[str, Outcome],
) -> CombinedAnswer:
    """Return the answer with the answers of several agents made one, if a model can do that.

    It streams as a draft while it is made. What failed is named in our own words, behind it.
    """
    answered = [(step, outcomes[step.id]) for step in steps if step.id in outcomes]
    answered = [one for one in answered if one[1].is_answer and one[1].text]
    is_whole = answer.state == State.TASK_STATE_COMPLETED
    if turn.planner is None or not is_whole or len(answered) < 2:
        return answer
    draft = _Draft(turn.task)
    text = await turn.planner.write_answer(turn.task.text, answered, draft.say, draft.unsay)
    if not text.strip():
        await draft.end()
        return answer
    for failure in list_failures(steps, outcomes):
        await draft.say(f"\n{failure}")
    await draft.end()
    return replace(answer, text=draft.text)


async def deliver_answer(turn: SupervisorTurn, answer: CombinedAnswer) -> None:
    """Give the answer as one artifact, and end the turn."""
    task = turn.task
    if answer.text:
        artifact = task.artifact(
            _NAME, id=f"answer-{task.turn}", kind=event_pb2.ARTIFACT_KIND_SYNTHESIS
        )
        for begin in range(0, len(answer.text), _PIECE_CHARS):
            end = begin + _PIECE_CHARS
            await artifact.append(answer.text[begin:end], last=end >= len(answer.text))
    remember_turn(turn, "\n".join(filter(None, (answer.text, answer.status_text))))
    said = answer.status_text or None
    if answer.state == State.TASK_STATE_COMPLETED:
        await task.complete(said)
    elif answer.state == State.TASK_STATE_INPUT_REQUIRED:
        await task.require_input(said)
    elif answer.state == State.TASK_STATE_AUTH_REQUIRED:
        await task.require_auth(said)
    else:
        await task.fail(said)


async def ask_user(turn: SupervisorTurn, question: str) -> None:
    """End the turn with a question of the supervisor's own."""
    remember_turn(turn, question)
    await turn.task.require_input(question)


def remember_turn(turn: SupervisorTurn, said: str) -> None:
    """Keep what was said, for the model that plans the next turn; before anybody is told."""
    if turn.memory is not None:
        turn.memory.add_turn(said)


class _Draft:
    """The answer while a model words it."""

    def __init__(self, task: TurnRuntime) -> None:
        self.text = ""
        self._artifact = task.artifact(
            _NAME, id=f"draft-{task.turn}", kind=event_pb2.ARTIFACT_KIND_DRAFT
        )
        self._has_begun = False

    async def say(self, text: str) -> None:
        """Add to it."""
        self._has_begun = True
        self.text += text
        await self._artifact.append(text)

    async def unsay(self) -> None:
        """Take all of it back: the model that said it has failed."""
        if self.text:
            self.text = ""
            await self._artifact.replace(artifact_pb2.Artifact(name=_NAME))

    async def end(self) -> None:
        """Say that it is complete, if it was begun."""
        if self._has_begun:
            await self._artifact.close()
