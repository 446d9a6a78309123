"""`trunkline ask`: one question, its answer streamed."""

import asyncio
from dataclasses import dataclass

from trunkline.cli.options import agent_url, base_url
from trunkline.cli.outcome import Exit
from trunkline.cli.talk.answer import Answer
from trunkline.cli.talk.client import A2AClient
from trunkline.cli.talk.ephemeral import mesh_at
from trunkline.cli.talk.turn import exit_of, outcome_of, show_end, shown_answer, take_turn
from trunkline.cli.terminal import print_json, say
from trunkline.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask, and whom."""

    text: str
    agent: str | None
    task_id: str
    context_id: str
    timeout_s: float | None


async def ask(question: Question, *, url: str | None, as_json: bool) -> Exit:
    """Ask at `url`, or at the default mesh, or at an ephemeral one; print the answer.

    Raises:
        InvalidArgumentError: there is no question.
    """
    if not question.text.strip():
        raise InvalidArgumentError("QUESTION", "is empty; ask something")
    if question.task_id:
        # An ephemeral mesh can't have the task.
        url = base_url(url)
    async with mesh_at(url) as mesh:
        if mesh.is_ephemeral:
            advice = "the mesh was ephemeral: run `trunkline up` for one that keeps its tasks"
        else:
            advice = f"answer with: trunkline ask {_address(url, question.agent)}--task ID"
        client = A2AClient(agent_url(mesh.http, question.agent))
        async with client:
            if as_json:
                return await _ask_for_json(client, question)
            return await _ask(client, question, advice=advice, is_kept=not mesh.is_ephemeral)


async def _ask(client: A2AClient, question: Question, *, advice: str, is_kept: bool) -> Exit:
    answer = shown_answer(continues=bool(question.task_id))
    try:
        await _take(client, answer, question)
    except asyncio.CancelledError:
        if is_kept and answer.task_id:
            say(f"\nthe task goes on; `trunkline cancel {answer.task_id}` stops it")
        raise
    show_end(answer)
    code = exit_of(answer)
    if code is Exit.INPUT_REQUIRED:
        say(advice.replace("ID", f'{answer.task_id} "…"'))
    return code


async def _ask_for_json(client: A2AClient, question: Question) -> Exit:
    answer = Answer(write=lambda text: None, continues=bool(question.task_id))
    await _take(client, answer, question)
    outcome = await outcome_of(client, answer, agent=question.agent)
    print_json(outcome.as_json())
    return outcome.exit


async def _take(client: A2AClient, answer: Answer, question: Question) -> None:
    await take_turn(
        client,
        answer,
        question.text,
        task_id=question.task_id,
        context_id=question.context_id,
        timeout_s=question.timeout_s,
    )


def _address(url: str | None, agent: str | None) -> str:
    """Return the options that lead to the same agent again."""
    return (f"--url {url} " if url else "") + (f"--agent {agent} " if agent else "")
