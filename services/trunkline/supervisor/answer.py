"""Combines the outcomes of the steps into one answer, and delivers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trunkline.agents.calls.outcome import AGENTS_KEY, Outcome, failed_outcome
from trunkline.core import json_values
from trunkline.core.task_states import (
    FAILURES_NAMED_KEY,
    OUTCOME_KEY,
    PARTS_MISSING_KEY,
    StateValue,
    TaskOutcome,
)
from trunkline.supervisor.planning import MAX_STEPS
from trunkline.supervisor.steps import Step
from trunkline.supervisor.turn import SupervisorTurn
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2


@dataclass(frozen=True, slots=True)
class CombinedAnswer:
    """The answer of a turn, and the state in which it ends."""

    state: StateValue
    text: str = ""
    """The answer text. Empty if there is none."""
    status_text: str = ""
    """The text of the final status: a question, or the reason for a failure."""
    files: tuple[part_pb2.Part, ...] = field(default=(), repr=False)
    """The parts that are not text."""
    agents: tuple[str, ...] = ()
    """The agents that answered, in the plan's order."""
    is_partial: bool = False
    """True if a part of it is missing, and no later turn can add it."""


def combine_outcomes(steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> CombinedAnswer:
    """Combine the answers of the steps in the plan's order, and name failed steps."""
    results = [
        (step, outcomes.get(step.id) or failed_outcome(step.agent, "it was not run"))
        for step in steps
    ]
    answers = [outcome for _, outcome in results if outcome.is_answer]
    has_content = any(outcome.text or outcome.files for outcome in answers)
    # Among other answers, silence is named, because the reader can't know whose is missing.
    lines = [
        _render_outcome(step, outcome, names_silence=has_content)
        for step, outcome in results
        if not outcome.is_waiting
    ]
    text = "\n".join(line for line in lines if line)
    whole = CombinedAnswer(
        State.TASK_STATE_COMPLETED,
        text,
        files=tuple(part for outcome in answers for part in outcome.files),
        agents=tuple(
            dict.fromkeys(name for outcome in answers for name in outcome.answering_agents)
        ),
        is_partial=any(outcome.is_failure or outcome.is_partial for _, outcome in results),
    )
    questions = [(step, outcome) for step, outcome in results if outcome.is_waiting]
    if questions:
        # An outcome without text waits for approvals, which the task describes itself.
        step, question = next((pair for pair in questions if pair[1].text), questions[0])
        question_text = step.add_earlier_failure(question.text) if question.text else ""
        if answers:
            return replace(whole, state=question.state, status_text=question_text)
        status_text = "\n".join(filter(None, (text, question_text)))
        return CombinedAnswer(question.state, "", status_text, is_partial=whole.is_partial)
    if not answers:
        return CombinedAnswer(State.TASK_STATE_FAILED, "", text)
    if not has_content:
        return replace(whole, status_text=_describe_silence(" and ".join(whole.agents)))
    return whole


def list_failures(steps: Sequence[Step], outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each failed step."""
    results = [(step, outcomes[step.id]) for step in steps if step.id in outcomes]
    return [step.describe_failure(outcome) for step, outcome in results if outcome.is_failure]


def too_many_steps_question(count: int) -> str:
    """Return the reply to a request with more steps than a plan may have."""
    return f"These are {count} questions; ask at most {MAX_STEPS} at once."


def render_plan(steps: Sequence[Step]) -> str:
    """Render the plan for people: a numbered line for each step."""
    return "\n".join(
        f"{number}. {step.agent or 'no agent'}: {step.line}"
        for number, step in enumerate(steps, start=1)
    )


def build_plan_steps(steps: Sequence[Step]) -> list[event_pb2.PlanStep]:
    """Convert the plan for the journal. The result is enough to run the plan."""
    return [
        event_pb2.PlanStep(
            step_id=step.id, text=step.text or step.plan_text, agent=step.agent, after=step.after
        )
        for step in steps
    ]


def find_second_choice(step: Step, outcome: Outcome) -> Step | None:
    """Return a failed step routed to the next best agent that scored at least half as much."""
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
            return replace(step, route=route, earlier_failure=step.describe_failure(outcome))
    return None


def _render_outcome(step: Step, outcome: Outcome, *, names_silence: bool) -> str:
    if outcome.is_failure:
        return step.describe_failure(outcome)
    is_silent = not outcome.text and not outcome.files
    return _describe_silence(outcome.agent) if is_silent and names_silence else outcome.text


def _describe_silence(agents: str) -> str:
    return f"{agents} left no answer."


# The answer is written in pieces of this size, so that each fits a frame of the wire.
_PIECE_CHARS = 32 * 1024
_NAME = "answer"


async def rewrite_answer(
    turn: SupervisorTurn,
    answer: CombinedAnswer,
    steps: Sequence[Step],
    outcomes: Mapping[str, Outcome],
) -> CombinedAnswer:
    """Have the planner merge the answers of several agents.

    The merged answer streams as a draft. Failed steps are named after it, without the model.
    """
    answers = [(step, outcomes[step.id]) for step in steps if step.id in outcomes]
    answers = [pair for pair in answers if pair[1].is_answer and pair[1].text]
    is_complete = answer.state == State.TASK_STATE_COMPLETED
    if not turn.planner.is_model or not is_complete or len(answers) < 2:
        return answer
    draft = _Draft(turn.task)
    text = await turn.planner.write_answer(
        turn.task.text,
        answers,
        draft.append,
        draft.clear,
        meter=turn.task.meter,
    )
    if not text.strip():
        await draft.close()
        return answer
    for failure in list_failures(steps, outcomes):
        await draft.append(f"\n{failure}")
    await draft.close()
    return replace(answer, text=draft.text)


async def deliver_answer(turn: SupervisorTurn, answer: CombinedAnswer) -> None:
    """Write the answer as one artifact, and end the turn."""
    task = turn.task
    starts = range(0, len(answer.text), _PIECE_CHARS)
    pieces: list[str | part_pb2.Part] = [
        answer.text[start : start + _PIECE_CHARS] for start in starts
    ]
    pieces += answer.files
    if pieces:
        artifact = task.artifact_of_kind(
            event_pb2.ARTIFACT_KIND_SYNTHESIS,
            _NAME,
            id=f"answer-{task.turn}",
            metadata={AGENTS_KEY: list(answer.agents)},
        )
        for number, piece in enumerate(pieces, start=1):
            await artifact.append(piece, last=number == len(pieces))
    await remember_turn(turn, "\n".join(filter(None, (answer.text, answer.status_text))))
    await task.enter(
        answer.state, answer.status_text or None, metadata=_build_metadata(task, answer)
    )


def _build_metadata(task: TurnRuntime, answer: CombinedAnswer) -> dict[str, Any]:
    """Return the metadata of the status that ends a turn."""
    is_partial = answer.is_partial or json_values.has_member(
        task.latest.task.metadata, PARTS_MISSING_KEY
    )
    if answer.state == State.TASK_STATE_FAILED:
        return {FAILURES_NAMED_KEY: True}
    if not is_partial:
        return {}
    if answer.state == State.TASK_STATE_COMPLETED:
        return {OUTCOME_KEY: TaskOutcome.PARTIAL.value}
    return {PARTS_MISSING_KEY: True}


async def ask_user(turn: SupervisorTurn, question: str) -> None:
    """End the turn with a question of the supervisor itself."""
    await remember_turn(turn, question)
    await turn.task.require_input(question)


async def remember_turn(turn: SupervisorTurn, reply: str) -> None:
    """Store the reply for the planner's next turn, before it is published."""
    if turn.memory is not None:
        await turn.memory.add_turn(reply)


class _Draft:
    """The draft of an answer that a model writes."""

    def __init__(self, task: TurnRuntime) -> None:
        self.text = ""
        self._artifact = task.artifact_of_kind(
            event_pb2.ARTIFACT_KIND_DRAFT, _NAME, id=f"draft-{task.turn}"
        )
        self._has_text = False

    async def append(self, text: str) -> None:
        """Append text."""
        self._has_text = True
        self.text += text
        await self._artifact.append(text)

    async def clear(self) -> None:
        """Remove all text, because the model that wrote it failed."""
        if self.text:
            self.text = ""
            await self._artifact.replace(artifact_pb2.Artifact(name=_NAME))

    async def close(self) -> None:
        """Close the artifact, if text was written."""
        if self._has_text:
            await self._artifact.close()
