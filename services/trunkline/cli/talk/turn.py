"""One message to an agent, and its answer shown while it comes."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from trunkline.cli.outcome import Exit
from trunkline.cli.talk.answer import Answer
from trunkline.cli.talk.client import A2AClient
from trunkline.cli.terminal import note, say, state_name, write
from trunkline.errors import PeerTimeoutError, TrunklineError

# The mesh ends a task at its deadline and says so; this much later the command gives up on it.
TIMEOUT_GRACE_S = 5.0

_EXITS = {
    "completed": Exit.OK,
    "canceled": Exit.CANCELED,
    "input-required": Exit.INPUT_REQUIRED,
    "auth-required": Exit.INPUT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a turn; its fields are what `--json` prints."""

    state: str
    answer: str
    agent: str
    confidence: float | None
    reasons: list[str]
    task_id: str
    context_id: str
    trace_id: str

    @property
    def exit(self) -> Exit:
        """The exit code: 0 only if the task completed."""
        return _EXITS.get(self.state, Exit.FAILED)

    @property
    def waits(self) -> bool:
        """Whether the task waits for the next message."""
        return self.exit is Exit.INPUT_REQUIRED

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


async def take_turn(
    client: A2AClient,
    answer: Answer,
    text: str,
    *,
    task_id: str = "",
    context_id: str = "",
    timeout_s: float | None = None,
    files: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Send a message, `files` beside its text, and feed `answer` until the turn is over.

    Raises:
        PeerTimeoutError: the task's deadline is past and nobody says how it ended.
    """
    limit_s = None if timeout_s is None else timeout_s + TIMEOUT_GRACE_S
    stream = client.stream(
        text, task_id=task_id, context_id=context_id, timeout_s=timeout_s, files=files
    )
    try:
        async with asyncio.timeout(limit_s), aclosing(stream) as results:
            async for result in results:
                answer.apply(result)
    except TimeoutError:
        problem = f"no answer after {limit_s:g} s"
        if answer.task_id:
            problem += f"; `trunkline task {answer.task_id}` shows how far it is"
        raise PeerTimeoutError(client.url, problem) from None
    answer.finish()


async def outcome_of(client: A2AClient, answer: Answer, *, agent: str | None) -> Outcome:
    """Return what came of a turn, with what the mesh says about how it was routed."""
    route: dict[str, Any] = {}
    if answer.task_id:
        try:
            task = await client.get_task(answer.task_id)
        except TrunklineError:
            # The answer is there; who gave it is worth no failure.
            task = {}
        route = task.get("metadata", {}).get("trunkline/route", {})
    return Outcome(
        state=state_of(answer),
        answer=answer.text,
        agent=route.get("agent") or agent or "",
        confidence=route.get("confidence"),
        reasons=list(route.get("reasons", [])),
        task_id=answer.task_id,
        context_id=answer.context_id,
        trace_id=client.trace_id,
    )


def shown_answer(*, continues: bool) -> Answer:
    """Return an answer that is written to stdout as it comes, its progress to a terminal."""
    return Answer(write=write, note=note, continues=continues)


def show_end(answer: Answer) -> None:
    """Say how a turn ended that did not complete: a question to stdout, a failure to stderr."""
    state = state_of(answer)
    if _EXITS.get(state) is Exit.INPUT_REQUIRED:
        write(f"{answer.said or state}\n")
    elif state != "completed":
        said = " ".join(answer.said.split())
        say(f"{state}: {said}" if said else state)


def exit_of(answer: Answer) -> Exit:
    """Return the exit code that a turn's end calls for."""
    return _EXITS.get(state_of(answer), Exit.FAILED)


def state_of(answer: Answer) -> str:
    """Return the state a turn ended in; a direct reply has none and is complete."""
    return state_name(answer.state) or "completed"
