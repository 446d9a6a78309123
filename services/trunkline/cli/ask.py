"""`trunkline ask` and `chat`: sends messages to an agent and prints its answers as they stream."""

import asyncio
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline import telemetry
from trunkline.cli.answer_view import AnswerView
from trunkline.cli.attachments import read_parts, save_files
from trunkline.cli.ephemeral_mesh import START_A_MESH, MeshAddresses, is_listening, open_mesh
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import build_agent_url
from trunkline.cli.streamed_answer import StreamedAnswer
from trunkline.cli.terminal import (
    is_text,
    print_json,
    print_progress,
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
from trunkline.network import is_this_machine
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
    route: dict[str, Any] = {}
    if answer.task_id:
        try:
            with telemetry.suppress_spans():
                task = await client.get_task(answer.task_id)
        except TrunklineError:
            # The answer is complete, so a missing route is no error.
            task = {}
        route = task.get("metadata", {}).get("trunkline/route", {})
    return TurnReport(
        state=turn_state(answer),
        outcome=answer.outcome or _OUTCOMES.get(turn_state(answer), ""),
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


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its recipient and its options."""

    text: str
    agent: str | None
    """The name of the agent; None: the default one."""
    task_id: str
    """The earlier task to continue, or ""."""
    context_id: str
    """The context to continue, or ""."""
    timeout_s: float | None
    """The time after which the mesh ends the task; None: its own limit."""
    files: tuple[str, ...] = ()
    """Paths and URLs of files to send."""
    save: Path | None = None
    """The folder for the files of the answer; None: they are not saved."""
    api_key: str = field(default="", repr=False)
    is_plain: bool = False
    """Print the answer without rendering its Markdown."""


async def ask(
    question: Question, *, url: str | None, as_json: bool, workflow: str = ""
) -> ExitCode:
    """Ask a mesh as `open_mesh` finds it, and print the answer. Return the turn's exit code.

    An ephemeral mesh has the `workflow`.

    Ctrl-C or an expired `timeout_s` cancels the task.

    Raises:
        InvalidArgumentError: the question is empty, a file can't be read or is too large, or the
            default agent has no such task.
        ConfigurationError: the URL is invalid, or a file of the answer can't be saved.
        PeerTimeoutError: the answer did not end in time.
        PeerUnavailableError: no mesh answers, or the stream broke.
    """
    if not question.text.strip():
        raise InvalidArgumentError("QUESTION", "is empty; ask something")
    files = await asyncio.to_thread(read_parts, question.files)
    # An ephemeral mesh has no earlier task or context to continue.
    may_start = not (question.task_id or question.context_id)
    async with open_mesh(url, may_start=may_start, workflow=workflow) as mesh:
        if mesh.is_ephemeral:
            advice = "the mesh was ephemeral: run `trunkline up` for one that keeps its tasks"
        else:
            advice = f"answer with: trunkline ask {_target_options(url, question.agent)}--task ID"
        client = _build_client(mesh, question.agent, question.api_key)
        async with client:
            if as_json:
                return await _ask_for_json(client, question, files)
            return await _ask(client, question, files, advice=advice)


def _build_client(mesh: MeshAddresses, agent: str | None, api_key: str) -> "AgentClient":
    # Imported here: an ephemeral mesh starts meanwhile.
    from trunkline.cli.agent_client import AgentClient

    return AgentClient(build_agent_url(mesh.http, agent), api_key=api_key)


async def _ask(client: "AgentClient", question: Question, files: Parts, *, advice: str) -> ExitCode:
    answer = terminal_answer(continues=bool(question.task_id), is_plain=question.is_plain)
    await _send_question(client, answer, question, files)
    show_end(answer)
    code = turn_exit_code(answer)
    if code is ExitCode.INPUT_REQUIRED:
        # The id is the server's: it must not become a command of the user's shell.
        print_stderr(advice.replace("--task ID", f'--task {shlex.quote(answer.task_id)} "…"'))
    return code


async def _ask_for_json(client: "AgentClient", question: Question, files: Parts) -> ExitCode:
    answer = StreamedAnswer(write=lambda text: None, continues=bool(question.task_id))
    try:
        await _send_question(client, answer, question, files)
    except asyncio.CancelledError:
        answer.task_id = answer.task_id or question.task_id
        print_json((await _report_interrupted(client, answer, question.agent)).to_json())
        raise
    report = await build_report(client, answer, agent=question.agent)
    print_json(report.to_json())
    return report.exit_code


async def _report_interrupted(
    client: "AgentClient", answer: StreamedAnswer, agent: str | None
) -> TurnReport:
    """Return what is known of a turn that was interrupted: the task's latest state, "" if none."""
    state = state_name(answer.state)
    with suppress(TimeoutError, TrunklineError):
        async with asyncio.timeout(_CANCEL_TIMEOUT_S):
            task = await client.get_task(answer.task_id) if answer.task_id else {}
            state = state_name(task.get("status", {}).get("state", "")) or state
    return TurnReport(
        state=state,
        outcome=answer.outcome or _OUTCOMES.get(state, ""),
        answer=answer.text,
        status_text=answer.end_text,
        agent=", ".join(answer.agents) or agent or "",
        confidence=None,
        reasons=[],
        task_id=answer.task_id,
        context_id=answer.context_id,
        trace_id=client.trace_id,
    )


async def _send_question(
    client: "AgentClient", answer: StreamedAnswer, question: Question, files: Parts
) -> None:
    try:
        await send_turn(
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
        print_stderr(await _cancel(client, answer.task_id or question.task_id))
        raise
    except TaskNotFoundError:
        if question.agent or not question.task_id:
            raise
        problem = (
            f"{question.task_id!r} is no task of the default agent; give its own agent by --agent "
            "(`trunkline tasks` lists both)"
        )
        raise InvalidArgumentError("--task", problem) from None
    except PeerUnavailableError as error:
        if not answer.task_id:
            raise
        problem = f"{error.problem}; then `trunkline watch {answer.task_id}` follows the task"
        raise PeerUnavailableError(error.peer, problem) from error
    if question.save is not None:
        await save_files(client, answer.files, question.save)


async def _cancel(client: "AgentClient", task_id: str) -> str:
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


def _target_options(url: str | None, agent: str | None) -> str:
    """Return the options that address the same agent again."""
    return (f"--url {url} " if url else "") + (f"--agent {agent} " if agent else "")


_CHAT_HELP = """\
/new      start a new context: the agents forget this conversation
/context  print the id of the context, for `trunkline chat --context`
/task     print the id of the last task, for `trunkline task`
/quit     leave, as Ctrl-D does
Ctrl-C cancels a turn. Every other line is sent to the agent."""


def chat(
    agent: str | None,
    *,
    url: str | None,
    api_key: str = "",
    context_id: str = "",
    as_json: bool,
    is_plain: bool = False,
) -> ExitCode:
    """Send each line of stdin as a turn of one conversation until stdin ends.

    Ctrl-C cancels the running turn. Stdin may be a terminal or a pipe. `/help` lists the lines that
    are commands. The errors of a turn are printed, and the chat continues, but it ends if no mesh
    answers the first turn. The exit code tells only whether a mesh was found.
    """
    # One event loop serves the whole conversation and runs only during turns. While input() waits
    # for a line, the terminal handles Ctrl-C and line editing as usual.
    with asyncio.Runner() as runner:
        conversation = _Conversation(
            agent, as_json=as_json, api_key=api_key, context_id=context_id, is_plain=is_plain
        )
        code = ExitCode.OK
        try:
            runner.run(conversation.open(url))
            if sys.stdin.isatty():
                print_progress("/help lists the commands, Ctrl-D leaves")
            while (line := _read_line()) is not None and line.strip() != "/quit":
                if line.strip():
                    _run_line(runner, conversation, line)
        except TrunklineError as error:
            code = print_error(error)
        except KeyboardInterrupt:
            code = ExitCode.CANCELED
        finally:
            runner.run(conversation.close())
    return code


_CHAT_COMMAND = re.compile("/[a-z]+")


def _run_line(runner: asyncio.Runner, conversation: "_Conversation", line: str) -> None:
    try:
        if not is_text(line):
            problem = f"is not {sys.stdin.encoding} text and was not sent; write it again"
            raise InvalidArgumentError("the line", problem)
        if _CHAT_COMMAND.fullmatch(line.strip()):
            conversation.run_command(line.strip())
        else:
            runner.run(conversation.turn(line))
    except KeyboardInterrupt:
        runner.run(conversation.cancel())
    except TrunklineError as error:
        if isinstance(error, PeerUnavailableError) and not conversation.has_mesh:
            raise
        print_error(error)


def _read_line() -> str | None:
    """Return the next line, or None at the end of the input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline() or None
    # Importing readline gives input() line editing and a history.
    import readline  # noqa: F401

    while True:
        try:
            return input("> ")
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print_stderr("\n(Ctrl-D leaves)")


@dataclass
class _Conversation:
    agent: str | None
    as_json: bool = field(kw_only=True)
    api_key: str = field(default="", kw_only=True, repr=False)
    context_id: str = ""
    is_plain: bool = field(default=False, kw_only=True)
    # The task that waits for the next line, if any.
    task_id: str = ""
    last_task_id: str = ""
    # True once a mesh has answered.
    has_mesh: bool = False

    def __post_init__(self) -> None:
        self._exit_stack = AsyncExitStack()
        self._running: StreamedAnswer | None = None

    async def open(self, url: str | None) -> None:
        mesh = await self._exit_stack.enter_async_context(open_mesh(url))
        # Other machines may be behind a proxy.
        if is_this_machine(mesh.http) and not await is_listening(mesh.http):
            raise PeerUnavailableError(mesh.http, START_A_MESH)
        client = _build_client(mesh, self.agent, self.api_key)
        self._client = await self._exit_stack.enter_async_context(client)

    async def close(self) -> None:
        await self._exit_stack.aclose()

    def run_command(self, command: str) -> None:
        """Run a line that is a command of the chat.

        Raises:
            InvalidArgumentError: there is no such command.
        """
        match command:
            case "/help":
                print_stderr(_CHAT_HELP)
            case "/new":
                self.context_id = self.task_id = ""
                print_stderr("the next line starts a new context")
            case "/context":
                print_stderr(self.context_id or "no context yet: the first answer has it")
            case "/task":
                print_stderr(self.last_task_id or "no task yet: the first answer has it")
            case _:
                problem = "no such command; /help lists them"
                raise InvalidArgumentError(command, problem)

    async def turn(self, text: str) -> None:
        """Send a line, and print the answer."""
        continues = bool(self.task_id)
        if self.as_json:
            answer = StreamedAnswer(write=lambda text: None, continues=continues)
        else:
            answer = terminal_answer(continues=continues, is_plain=self.is_plain)
        self._running = answer
        await send_turn(
            self._client, answer, text, task_id=self.task_id, context_id=self.context_id
        )
        self._running = None
        self.has_mesh = True
        self.context_id = answer.context_id or self.context_id
        self.last_task_id = answer.task_id
        self.task_id = answer.task_id if turn_exit_code(answer) is ExitCode.INPUT_REQUIRED else ""
        if self.as_json:
            report = await build_report(self._client, answer, agent=self.agent)
            print_json(report.to_json())
        else:
            show_end(answer)

    async def cancel(self) -> None:
        """Cancel the task of an abandoned turn, and say so."""
        answer, self._running = self._running, None
        if answer is None:
            return
        answer.break_off()
        if answer.task_id:
            self.task_id = ""
            self.last_task_id = answer.task_id
            self.context_id = answer.context_id or self.context_id
        print_stderr(await _cancel(self._client, answer.task_id))
        if self.as_json:
            print_json((await _report_interrupted(self._client, answer, self.agent)).to_json())
