"""Sends messages to an agent of a mesh, and prints its answers as they stream."""

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from trunkline.a2a_client.answers import ClientAnswer, ClientEvent, answer_artifacts
from trunkline.cli.agent_client import AgentClient, build_message
from trunkline.cli.answer_printer import (
    AnswerPrinter,
    find_files,
    render_answer,
    render_end,
    status_text,
)
from trunkline.cli.answer_view import AnswerView
from trunkline.cli.attachments import save_files
from trunkline.cli.ephemeral_mesh import MeshAddresses
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import build_agent_url
from trunkline.cli.terminal import BOLD, paint, print_json, print_stderr, write
from trunkline.cli.times import render_percent
from trunkline.core.json_values import read_member, struct_json
from trunkline.core.runtime import run_with_late_cancel
from trunkline.core.task_states import TaskOutcome, TaskState, state_name
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.v1 import message_pb2, part_pb2

# When the command stops before the answer is complete: the time limits for learning the id of the
# task, and for canceling it.
_CANCEL_TIMEOUT_S: Final = 2.0
_ROUTE_KEY: Final = "trunkline/route"
# The agents that answered, in the metadata of an answer that a supervisor merged.
_AGENTS_KEY: Final = "trunkline/agents"

_EXIT_CODES: Final[Mapping[TaskState, ExitCode]] = {
    TaskState.COMPLETED: ExitCode.OK,
    TaskState.CANCELED: ExitCode.CANCELED,
    TaskState.INPUT_REQUIRED: ExitCode.INPUT_REQUIRED,
    TaskState.AUTH_REQUIRED: ExitCode.INPUT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """The result of a turn. `--json` prints its fields.

    `agent` names all agents that answered, with commas. `confidence` and `reasons` are of the first
    route that the mesh chose. Ids are "" if the server did not send them.
    """

    state: str
    outcome: str = ""
    """complete, partial or failed; "" while the task has not ended."""
    answer: str
    """The text that the agents wrote. An agent may write it as the status of a completed task."""
    status_text: str = ""
    """A question, or the reason why the task failed."""
    agent: str = ""
    confidence: float | None = None
    reasons: Sequence[str] = ()
    task_id: str
    context_id: str
    trace_id: str = ""

    @classmethod
    def build(cls, answer: ClientAnswer, agent: str | None, route: Mapping[str, Any]) -> Self:
        """Return the report of a turn that is over."""
        return cls(
            state=answer.state,
            outcome=answer.outcome or "",
            answer=render_answer(answer),
            status_text=render_end(answer),
            agent=", ".join(_list_agents(answer)) or route.get("agent") or agent or "",
            confidence=route.get("confidence"),
            reasons=route.get("reasons", []),
            task_id=answer.task_id,
            context_id=answer.context_id,
            trace_id=answer.trace_id,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


def _list_agents(answer: ClientAnswer) -> list[str]:
    """Return the agents that answered, if a supervisor named them."""
    for artifact in answer_artifacts(answer.artifacts):
        if isinstance(agents := read_member(artifact.metadata, _AGENTS_KEY), list):
            return [str(agent) for agent in agents]
    return []


async def send_turn(
    client: AgentClient,
    printer: AnswerPrinter,
    message: message_pb2.Message,
    *,
    timeout_s: float | None = None,
) -> ClientAnswer:
    """Send a message, print the answer as it arrives, and return it when the turn is over.

    A call that is cancelled before the first event waits a moment for the id of the task.

    Raises:
        PeerTimeoutError: the turn did not end by some seconds after `timeout_s`.
    """
    is_named = asyncio.Event()

    async def emit(event: ClientEvent) -> None:
        await printer.emit(event)
        is_named.set()

    async def wait_for_id(_: "asyncio.Task[ClientAnswer | Exception]") -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if message.task_id else _CANCEL_TIMEOUT_S):
                await is_named.wait()

    try:
        sending = client.send(message, emit, timeout_s=timeout_s)
        answer = await run_with_late_cancel(sending, wait_for_id)
        printer.finish(answer)
    finally:
        printer.close()
    return answer


async def build_report(
    client: AgentClient, answer: ClientAnswer, *, agent: str | None
) -> TurnReport:
    """Return the result of a turn. The task's route is read from the mesh."""
    route: Any = None
    if answer.task_id:
        # The answer is complete, so a missing route is no error.
        with suppress(TrunklineError):
            task = await client.get_task(answer.task_id)
            route = struct_json(task.metadata).get(_ROUTE_KEY)
    return TurnReport.build(answer, agent, route or {})


async def report_interrupted(
    client: AgentClient, printer: AnswerPrinter, agent: str | None
) -> TurnReport:
    """Return what is known of an interrupted turn: the latest state of the task, "" if none."""
    state = printer.state or ""
    with suppress(TimeoutError, TrunklineError):
        async with asyncio.timeout(_CANCEL_TIMEOUT_S):
            if printer.task_id:
                state = state_name((await client.get_task(printer.task_id)).status.state)
    return TurnReport(
        state=state,
        outcome=TaskOutcome.FAILED if state == TaskState.CANCELED else "",
        answer=printer.printed.rstrip("\n"),
        agent=agent or "",
        task_id=printer.task_id,
        context_id=printer.context_id,
    )


def silent_printer() -> AnswerPrinter:
    """Return a printer that prints nothing, for `--json`."""
    return AnswerPrinter(write=lambda _: None)


def terminal_printer(*, is_plain: bool = False) -> AnswerPrinter:
    """Return a printer to stdout.

    On terminals, its progress is shown on stderr, and Markdown is rendered unless `is_plain`.
    """
    view = AnswerView(is_plain=is_plain)
    view.show_progress("waiting for the answer")
    return AnswerPrinter(write=view.write, show_progress=view.show_progress, close=view.close)


def show_end(answer: ClientAnswer) -> None:
    """Print the status of a turn that did not complete: a question to stdout, else to stderr.

    A status that the answer ends with was printed already.
    """
    text = status_text(answer).strip()
    is_printed = bool(text) and f"\n{render_answer(answer).rstrip()}".endswith(f"\n{text}")
    if find_exit_code(answer) is ExitCode.INPUT_REQUIRED:
        if not is_printed:
            write(f"{text or answer.state}\n")
    elif answer.state is not TaskState.COMPLETED:
        reason = "" if is_printed else " ".join(text.split())
        print_stderr(f"{answer.state}: {reason}" if reason else answer.state)


def find_exit_code(answer: ClientAnswer) -> ExitCode:
    """Return the exit code for the end of a turn: 0 only if nothing is missing."""
    if answer.outcome is TaskOutcome.PARTIAL:
        return ExitCode.PARTIAL
    return _EXIT_CODES.get(answer.state, ExitCode.FAILED)


async def ask_agent(
    mesh: MeshAddresses,
    text: str,
    *,
    agent: str | None = None,
    url: str | None = None,
    task_id: str = "",
    context_id: str = "",
    timeout_s: float | None = None,
    files: Sequence[part_pb2.Part] = (),
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
        printer = silent_printer() if as_json else terminal_printer(is_plain=is_plain)
        message = build_message(text, task_id=task_id, context_id=context_id, files=files)
        try:
            async with _explain_failure(client, printer, agent, task_id):
                answer = await send_turn(client, printer, message, timeout_s=timeout_s)
            if save is not None:
                await save_files(client, find_files(answer), save)
        except asyncio.CancelledError:
            if as_json:
                printer.task_id = printer.task_id or task_id
                print_json((await report_interrupted(client, printer, agent)).to_json())
            raise
        code = find_exit_code(answer)
        if as_json:
            print_json((await build_report(client, answer, agent=agent)).to_json())
            return code
    show_end(answer)
    if code is ExitCode.INPUT_REQUIRED:
        print_stderr(_advise(mesh, answer.task_id, url, agent))
    return code


async def ask_and_show(
    client: AgentClient, question: str, *, as_json: bool
) -> tuple[TurnReport, ExitCode]:
    """Ask a question; print it with the answer, and who gave that. Return the exit code, too."""
    if not as_json:
        print(paint(f"\n> {question}", BOLD, sys.stdout), flush=True)
    printer = silent_printer() if as_json else terminal_printer()
    started = time.monotonic()
    answer = await send_turn(client, printer, build_message(question))
    took_ms = (time.monotonic() - started) * 1000
    report = await build_report(client, answer, agent=None)
    if not as_json:
        show_end(answer)
        confidence = render_percent(report.confidence or 0)
        print(f"  [{report.agent}, confidence {confidence}, {took_ms:.0f} ms]")
    return report, find_exit_code(answer)


@asynccontextmanager
async def _explain_failure(
    client: AgentClient, printer: AnswerPrinter, agent: str | None, task_id: str
) -> AsyncGenerator[None]:
    """Say what to do next if a block can't get an answer. One that stops cancels its task."""
    try:
        yield
    except (asyncio.CancelledError, PeerTimeoutError):
        printer.break_off()
        print_stderr(await cancel_turn(client, printer.task_id or task_id))
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
        if not printer.task_id:
            raise
        advice = f"then `trunkline watch {printer.task_id}` follows the task"
        raise PeerUnavailableError(error.peer, f"{error.problem}; {advice}") from error


def _advise(mesh: MeshAddresses, task_id: str, url: str | None, agent: str | None) -> str:
    """Return how to answer what an agent asks."""
    if mesh.is_ephemeral:
        return "the mesh was ephemeral: run `trunkline up` for a mesh that keeps its tasks"
    target = (f"--url {url} " if url else "") + (f"--agent {agent} " if agent else "")
    # The id is the server's: it must not become a command of the user's shell.
    return f'answer with: trunkline ask {target}--task {shlex.quote(task_id)} "…"'


def open_client(mesh: MeshAddresses, agent: str | None, api_key: str) -> AgentClient:
    """Return a client of an agent of a mesh, to be entered."""
    return AgentClient(build_agent_url(mesh.http, agent), api_key=api_key)


async def cancel_turn(client: AgentClient, task_id: str) -> str:
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
