"""A conversation with an agent of a mesh, line by line."""

import asyncio
import re
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trunkline.cli.agent_client import build_message
from trunkline.cli.ask import (
    build_report,
    cancel_turn,
    find_exit_code,
    open_client,
    report_interrupted,
    send_turn,
    show_end,
    silent_printer,
    terminal_printer,
)
from trunkline.cli.ephemeral_mesh import START_A_MESH, open_mesh
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.terminal import is_text, print_json, print_stderr
from trunkline.core.network import is_listening, is_this_machine
from trunkline.errors import InvalidArgumentError, PeerUnavailableError, TrunklineError

if TYPE_CHECKING:
    from trunkline.cli.answer_printer import AnswerPrinter

_CHAT_HELP = """\
/new      start a new context: the agents forget this conversation
/context  print the id of the context, for `trunkline chat --context`
/task     print the id of the last task, for `trunkline task`
/quit     leave, as Ctrl-D does
Ctrl-C cancels a turn. Every other line is sent to the agent."""


_CHAT_COMMAND = re.compile("/[a-z]+")


def run_line(runner: asyncio.Runner, conversation: "Conversation", line: str) -> None:
    """Send a line, or run it as a command of the chat. Errors of a turn are printed."""
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


def read_line() -> str | None:
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
class Conversation:
    """The turns of a conversation, and what each takes over from those before it."""

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
        self._running: AnswerPrinter | None = None

    async def open(self, url: str | None) -> None:
        """Find a mesh, as `open_mesh` does. PeerUnavailableError: none answers."""
        mesh = await self._exit_stack.enter_async_context(open_mesh(url))
        # Other machines may be behind a proxy.
        if is_this_machine(mesh.http) and not await is_listening(mesh.http):
            raise PeerUnavailableError(mesh.http, START_A_MESH)
        client = open_client(mesh, self.agent, self.api_key)
        self._client = await self._exit_stack.enter_async_context(client)

    async def close(self) -> None:
        """Leave the mesh. One that this conversation started ends."""
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
        printer = silent_printer() if self.as_json else terminal_printer(is_plain=self.is_plain)
        self._running = printer
        message = build_message(text, task_id=self.task_id, context_id=self.context_id)
        answer = await send_turn(self._client, printer, message)
        self._running = None
        self.has_mesh = True
        self.context_id = answer.context_id or self.context_id
        self.last_task_id = answer.task_id
        self.task_id = answer.task_id if find_exit_code(answer) is ExitCode.INPUT_REQUIRED else ""
        if self.as_json:
            report = await build_report(self._client, answer, agent=self.agent)
            print_json(report.to_json())
        else:
            show_end(answer)

    async def cancel(self) -> None:
        """Cancel the task of an abandoned turn, and say so."""
        printer, self._running = self._running, None
        if printer is None:
            return
        printer.break_off()
        if printer.task_id:
            self.task_id = ""
            self.last_task_id = printer.task_id
            self.context_id = printer.context_id or self.context_id
        print_stderr(await cancel_turn(self._client, printer.task_id))
        if self.as_json:
            print_json((await report_interrupted(self._client, printer, self.agent)).to_json())
