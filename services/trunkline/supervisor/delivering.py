"""Gives the answer of a turn, in a model's words if there is one, and ends the turn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trunkline.supervisor.answer import Answer, failures
from trunkline.supervisor.running import Turn
from trunkline.supervisor.steps import Outcome, Step
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.v1 import artifact_pb2, event_pb2

# The answer is written in pieces of this size, so that each fits a frame of the wire.
_PIECE_CHARS = 32 * 1024
_NAME = "answer"


async def worded(
    turn: Turn, answer: Answer, steps: Sequence[Step], outcomes: Mapping[str, Outcome]
) -> Answer:
    """Return the answer with the answers of several agents made one, if a model can do that.

    It streams as a draft while it is made. What failed is named in our own words, behind it.
    """
    answered = [(step, outcomes[step.id]) for step in steps if step.id in outcomes]
    answered = [one for one in answered if one[1].is_answer and one[1].text]
    is_whole = answer.state == State.TASK_STATE_COMPLETED
    if turn.planner is None or not is_whole or len(answered) < 2:
        return answer
    draft = _Draft(turn.task)
    text = await turn.planner.word(turn.task.text, answered, draft.say, draft.unsay)
    if not text.strip():
        await draft.end()
        return answer
    for failure in failures(steps, outcomes):
        await draft.say(f"\n{failure}")
    await draft.end()
    return replace(answer, text=draft.text)


async def deliver(turn: Turn, answer: Answer) -> None:
    """Give the answer as one artifact, and end the turn."""
    task = turn.task
    if answer.text:
        artifact = task.artifact(
            _NAME, id=f"answer-{task.turn}", kind=event_pb2.ARTIFACT_KIND_SYNTHESIS
        )
        for begin in range(0, len(answer.text), _PIECE_CHARS):
            end = begin + _PIECE_CHARS
            await artifact.append(answer.text[begin:end], last=end >= len(answer.text))
    remember(turn, "\n".join(filter(None, (answer.text, answer.said))))
    said = answer.said or None
    if answer.state == State.TASK_STATE_COMPLETED:
        await task.complete(said)
    elif answer.state == State.TASK_STATE_INPUT_REQUIRED:
        await task.require_input(said)
    elif answer.state == State.TASK_STATE_AUTH_REQUIRED:
        await task.require_auth(said)
    else:
        await task.fail(said)


async def ask_back(turn: Turn, question: str) -> None:
    """End the turn with a question of the supervisor's own."""
    remember(turn, question)
    await turn.task.require_input(question)


def remember(turn: Turn, said: str) -> None:
    """Keep what was said, for the model that plans the next turn; before anybody is told."""
    if turn.memory is not None:
        turn.memory.add(said)


class _Draft:
    """The answer while a model words it."""

    def __init__(self, task: TaskContext) -> None:
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
