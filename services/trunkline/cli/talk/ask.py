"""`trunkline ask`: one question, its answer streamed."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from trunkline.cli.options import agent_url
from trunkline.cli.outcome import Exit
from trunkline.cli.talk.answer import Answer
from trunkline.cli.talk.client import A2AClient
from trunkline.cli.talk.ephemeral import mesh_at
from trunkline.cli.talk.files import parts_of, save
from trunkline.cli.talk.turn import exit_of, outcome_of, show_end, shown_answer, take_turn
from trunkline.cli.terminal import print_json, say
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    TaskNotCancelableError,
    TrunklineError,
)

# Whoever gave up on the answer doesn't wait longer than this for its task to be canceled.
CANCEL_LIMIT_S = 2.0

Parts: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask, and whom."""

    text: str
    agent: str | None
    task_id: str
    context_id: str
    timeout_s: float | None
    files: tuple[str, ...] = ()
    """Paths and URLs of what goes with it."""
    save: Path | None = None
    """Where the files of the answer go."""
    api_key: str = field(default="", repr=False)


async def ask(question: Question, *, url: str | None, as_json: bool) -> Exit:
    """Ask at `url`, or at the default mesh, or at an ephemeral one; print the answer.

    Ctrl-C, or a mesh that lets the time limit pass, cancels the task.

    Raises:
        InvalidArgumentError: there is no question.
    """
    if not question.text.strip():
        raise InvalidArgumentError("QUESTION", "is empty; ask something")
    files = await asyncio.to_thread(parts_of, question.files)
    # What is to be gone on with, an ephemeral mesh can't have.
    may_start = not (question.task_id or question.context_id)
    async with mesh_at(url, may_start=may_start) as mesh:
        if mesh.is_ephemeral:
            advice = "the mesh was ephemeral: run `trunkline up` for one that keeps its tasks"
        else:
            advice = f"answer with: trunkline ask {_address(url, question.agent)}--task ID"
        client = A2AClient(agent_url(mesh.http, question.agent), api_key=question.api_key)
        async with client:
            if as_json:
                return await _ask_for_json(client, question, files)
            return await _ask(client, question, files, advice=advice)


async def _ask(client: A2AClient, question: Question, files: Parts, *, advice: str) -> Exit:
    answer = shown_answer(continues=bool(question.task_id))
    await _take(client, answer, question, files)
    show_end(answer)
    code = exit_of(answer)
    if code is Exit.INPUT_REQUIRED:
        say(advice.replace("ID", f'{answer.task_id} "…"'))
    return code


async def _ask_for_json(client: A2AClient, question: Question, files: Parts) -> Exit:
    answer = Answer(write=lambda text: None, continues=bool(question.task_id))
    await _take(client, answer, question, files)
    outcome = await outcome_of(client, answer, agent=question.agent)
    print_json(outcome.as_json())
    return outcome.exit


async def _take(client: A2AClient, answer: Answer, question: Question, files: Parts) -> None:
    try:
        await take_turn(
            client,
            answer,
            question.text,
            task_id=question.task_id,
            context_id=question.context_id,
            timeout_s=question.timeout_s,
            files=files,
        )
    except (asyncio.CancelledError, PeerTimeoutError):
        answer.break_off()
        say(await _cancel(client, answer.task_id or question.task_id))
        raise
    if question.save is not None:
        await save(client, answer.files, question.save)


async def _cancel(client: A2AClient, task_id: str) -> str:
    """Cancel a task that nobody waits for any more; return what came of it."""
    if not task_id:
        return "left before the mesh had named a task"
    try:
        async with asyncio.timeout(CANCEL_LIMIT_S):
            await client.cancel_task(task_id)
    except TaskNotCancelableError:
        return f"task {task_id} had ended"
    except TimeoutError:
        return f"canceling task {task_id}; `trunkline task {task_id}` shows how far that is"
    except TrunklineError as error:
        return f"task {task_id} may go on: {' '.join(str(error).split())}"
    return f"canceled task {task_id}"


def _address(url: str | None, agent: str | None) -> str:
    """Return the options that lead to the same agent again."""
    return (f"--url {url} " if url else "") + (f"--agent {agent} " if agent else "")
