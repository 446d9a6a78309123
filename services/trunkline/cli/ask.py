"""Sends messages to an agent of a mesh, and prints its answers as they stream."""

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline import telemetry
from trunkline.cli.answer_view import AnswerView
from trunkline.cli.attachments import save_files
from trunkline.cli.ephemeral_mesh import MeshAddresses
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import build_agent_url
from trunkline.cli.streamed_answer import StreamedAnswer
from trunkline.cli.terminal import (
    BOLD,
    paint,
    print_json,
    print_stderr,
    state_name,
    write,
)
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.runtime import run_with_late_cancel

if TYPE_CHECKING:
    from trunkline.cli.agent_client import AgentClient

# The mesh ends a task at its deadline. The command waits this much longer for the status.
TIMEOUT_GRACE_S = 5.0
# When the command stops before the answer is complete: the time limits for learning the id of the
# task, and for canceling it.
_CANCEL_TIMEOUT_S = 2.0

Parts: TypeAlias = Sequence[Mapping[str, Any]]

_EXIT_CODES = {
    "completed": ExitCode.OK,
    "canceled": ExitCode.CANCELED,
    "input-required": ExitCode.INPUT_REQUIRED,
    "auth-required": ExitCode.INPUT_REQUIRED,
}
# For servers that do not say the outcome.
_OUTCOMES = {
    "completed": "complete",
    "failed": "failed",
    "rejected": "failed",
    "canceled": "failed",
}


@dataclass(frozen=True, slots=True)
class TurnReport:
    """The result of a turn. `--json` prints its fields.

    `agent` names all agents that answered, with commas. `confidence` and `reasons` are of the first
    route that the mesh chose. Ids are "" if the server did not send them.
    """

    state: str
    outcome: str
    """complete, partial or failed. Empty: the task has not ended."""
    answer: str
    """The text that the agents wrote. An agent may write it as the status of a completed task."""
    status_text: str
    """A question, or the reason why the task failed."""
    agent: str
    confidence: float | None
    reasons: list[str]
    task_id: str
    context_id: str
    trace_id: str

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: 0 only if the task completed, with nothing missing."""
        return _find_exit_code(self.state, self.outcome)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


async def send_turn(
    client: "AgentClient",
    answer: StreamedAnswer,
    text: str,
    *,
    task_id: str = "",
    context_id: str = "",
    timeout_s: float | None = None,
    files: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Send a message with files, and add the responses to `answer` until the turn ends.

    If it is cancelled before the first response, it waits a moment for the id of the task.

    Raises:
        PeerTimeoutError: no final status arrived by some seconds after `timeout_s`.
    """
    limit_s = None if timeout_s is None else timeout_s + TIMEOUT_GRACE_S
    stream = client.stream(
        text, task_id=task_id, context_id=context_id, timeout_s=timeout_s, files=files
    )
    is_named = asyncio.Event()

    async def read() -> None:
        async with aclosing(stream) as results:
            async for result in results:
                answer.apply(result)
                is_named.set()

    async def wait_for_id(_reading: "asyncio.Task[Exception | None]") -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if task_id else _CANCEL_TIMEOUT_S):
                await is_named.wait()

    try:
        async with asyncio.timeout(limit_s):
            await run_with_late_cancel(read(), wait_for_id)
    except TimeoutError:
        problem = f"no answer within {limit_s:g} s"
        if answer.task_id:
            problem += f"; `trunkline task {answer.task_id}` shows how far it is"
        raise PeerTimeoutError(client.url, problem) from None
    else:
        answer.finish()
    finally:
        answer.close()


async def build_report(
    client: "AgentClient", answer: StreamedAnswer, *, agent: str | None
) -> TurnReport:
    """Return the result of a turn. The task's route is read from the mesh."""
    task: dict[str, Any] = {}
    if answer.task_id:
        # The answer is complete, so a missing route is no error.
        with telemetry.suppress_spans(), suppress(TrunklineError):
            task = await client.get_task(answer.task_id)
    route = task.get("metadata", {}).get("trunkline/route", {})
    return _describe_turn(client, answer, agent, turn_state(answer), route)


async def report_interrupted(
    client: "AgentClient", answer: StreamedAnswer, agent: str | None
) -> TurnReport:
    """Return what is known of a turn that was interrupted: the task's latest state, "" if none."""
    state = state_name(answer.state)
    with suppress(TimeoutError, TrunklineError):
        async with asyncio.timeout(_CANCEL_TIMEOUT_S):
            task = await client.get_task(answer.task_id) if answer.task_id else {}
            state = state_name(task.get("status", {}).get("state", "")) or state
    return _describe_turn(client, answer, agent, state, {})


def _describe_turn(
    client: "AgentClient",
    answer: StreamedAnswer,
    agent: str | None,
    state: str,
    route: Mapping[str, Any],
) -> TurnReport:
    return TurnReport(
        state=state,
        outcome=answer.outcome or _OUTCOMES.get(state, ""),
        answer=answer.text,
        status_text=answer.end_text,
        agent=", ".join(answer.agents) or route.get("agent") or agent or "",
        confidence=route.get("confidence"),
        reasons=list(route.get("reasons", [])),
        task_id=answer.task_id,
        context_id=answer.context_id,
        trace_id=client.trace_id,
    )


def terminal_answer(*, continues: bool, is_plain: bool = False) -> StreamedAnswer:
    """Return an answer that is printed to stdout.

    On terminals, its progress is shown on stderr, and Markdown is rendered unless `is_plain`.
    """
    view = AnswerView(is_plain=is_plain)
    view.show_progress("waiting for the answer")
    return StreamedAnswer(
        write=view.write, print_progress=view.show_progress, close=view.close, continues=continues
    )


def show_end(answer: StreamedAnswer) -> None:
    """Print the status of a turn that did not complete: a question to stdout, else to stderr.

    A status that the answer ends with was printed already.
    """
    state = turn_state(answer)
    status = answer.status_text.strip()
    is_printed = bool(status) and f"\n{answer.artifact_text.rstrip()}".endswith(f"\n{status}")
    if _EXIT_CODES.get(state) is ExitCode.INPUT_REQUIRED:
        if not is_printed:
            write(f"{answer.status_text or state}\n")
    elif state != "completed":
        status = "" if is_printed else " ".join(status.split())
        print_stderr(f"{state}: {status}" if status else state)


def turn_exit_code(answer: StreamedAnswer) -> ExitCode:
    """Return the exit code for the end of a turn."""
    return _find_exit_code(turn_state(answer), answer.outcome)


def _find_exit_code(state: str, outcome: str) -> ExitCode:
    code = _EXIT_CODES.get(state, ExitCode.FAILED)
    is_partial = outcome == "partial"
    return ExitCode.PARTIAL if code is ExitCode.OK and is_partial else code


def turn_state(answer: StreamedAnswer) -> str:
    """Return the state in which a turn ended. A direct reply has none and counts as completed."""
    return state_name(answer.state) or "completed"


def check_question(text: str) -> None:
    """Check that there is something to ask. InvalidArgumentError: there is not."""
    if not text.strip():
        raise InvalidArgumentError("QUESTION", "is empty; ask something")


async def ask_agent(
    mesh: MeshAddresses,
    text: str,
    *,
    agent: str | None = None,
    url: str | None = None,
    task_id: str = "",
    context_id: str = "",
    timeout_s: float | None = None,
    files: Parts = (),
    save: Path | None = None,
    api_key: str = "",
    is_plain: bool = False,
    as_json: bool = False,
) -> ExitCode:
    """Ask an agent of a mesh, and print the answer. Return the turn's exit code.

    Without an `agent`, the default one is asked. Ctrl-C or an expired `timeout_s` cancels the task.

    Raises:
        InvalidArgumentError: the default agent has no such task.
        ConfigurationError: a file of the answer can't be saved.
        PeerTimeoutError: the answer did not end in time.
        PeerUnavailableError: no mesh answers, or the stream broke.
    """
    async with open_client(mesh, agent, api_key) as client:
        if as_json:
            answer = StreamedAnswer(write=lambda text: None, continues=bool(task_id))
        else:
            answer = terminal_answer(continues=bool(task_id), is_plain=is_plain)
        try:
            async with _explain_failure(client, answer, agent, task_id):
                await send_turn(
                    client,
                    answer,
                    text,
                    task_id=task_id,
                    context_id=context_id,
                    timeout_s=timeout_s,
                    files=files,
                )
            if save is not None:
                await save_files(client, answer.files, save)
        except asyncio.CancelledError:
            if as_json:
                answer.task_id = answer.task_id or task_id
                print_json((await report_interrupted(client, answer, agent)).to_json())
            raise
        if as_json:
            report = await build_report(client, answer, agent=agent)
            print_json(report.to_json())
            return report.exit_code
    show_end(answer)
    code = turn_exit_code(answer)
    if code is ExitCode.INPUT_REQUIRED:
        print_stderr(_advise(mesh, answer, url, agent))
    return code


async def ask_and_show(client: "AgentClient", question: str, *, as_json: bool) -> TurnReport:
    """Ask a question; print it with the answer, and who gave that."""
    # It loads protobuf, which the first question of `ask` does not wait for.
    from trunkline.cli.times import render_percent

    if as_json:
        answer = StreamedAnswer(write=lambda text: None)
    else:
        print(paint(f"\n> {question}", BOLD, sys.stdout), flush=True)
        answer = terminal_answer(continues=False)
    started = time.monotonic()
    await send_turn(client, answer, question)
    took_ms = (time.monotonic() - started) * 1000
    report = await build_report(client, answer, agent=None)
    if not as_json:
        show_end(answer)
        confidence = render_percent(report.confidence or 0)
        print(f"  [{report.agent}, confidence {confidence}, {took_ms:.0f} ms]")
    return report


@asynccontextmanager
async def _explain_failure(
    client: "AgentClient", answer: StreamedAnswer, agent: str | None, task_id: str
) -> AsyncGenerator[None]:
    """Say what to do next if a block can't get an answer. One that stops cancels its task."""
    try:
        yield
    except (asyncio.CancelledError, PeerTimeoutError):
        answer.break_off()
        print_stderr(await cancel_turn(client, answer.task_id or task_id))
        raise
    except TaskNotFoundError:
        if agent or not task_id:
            raise
        problem = (
            f"{task_id!r} is no task of the default agent; give its own agent by --agent "
            "(`trunkline tasks` lists both)"
        )
        raise InvalidArgumentError("--task", problem) from None
    except PeerUnavailableError as error:
        if not answer.task_id:
            raise
        advice = f"then `trunkline watch {answer.task_id}` follows the task"
        raise PeerUnavailableError(error.peer, f"{error.problem}; {advice}") from error


def _advise(mesh: MeshAddresses, answer: StreamedAnswer, url: str | None, agent: str | None) -> str:
    """Return how to answer what an agent asks."""
    if mesh.is_ephemeral:
        return "the mesh was ephemeral: run `trunkline up` for one that keeps its tasks"
    target = (f"--url {url} " if url else "") + (f"--agent {agent} " if agent else "")
    # The id is the server's: it must not become a command of the user's shell.
    return f'answer with: trunkline ask {target}--task {shlex.quote(answer.task_id)} "…"'


def open_client(mesh: MeshAddresses, agent: str | None, api_key: str) -> "AgentClient":
    """Return a client of an agent of a mesh, to be entered."""
    # Imported here: an ephemeral mesh starts meanwhile.
    from trunkline.cli.agent_client import AgentClient

    return AgentClient(build_agent_url(mesh.http, agent), api_key=api_key)


async def cancel_turn(client: "AgentClient", task_id: str) -> str:
    """Cancel an abandoned task; return a text that reports the result."""
    if not task_id:
        return "stopped before the mesh created a task"
    try:
        async with asyncio.timeout(_CANCEL_TIMEOUT_S):
            await client.cancel_task(task_id)
    except TaskNotCancelableError:
        return f"task {task_id} had ended"
    except TimeoutError:
        return f"canceling task {task_id}; `trunkline task {task_id}` shows how far that is"
    except TrunklineError as error:
        return f"task {task_id} may continue: {' '.join(str(error).split())}"
    return f"canceled task {task_id}"
