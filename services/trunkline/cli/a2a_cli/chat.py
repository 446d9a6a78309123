"""`chat`: lines of stdin as turns of one conversation."""

import asyncio
import sys
from typing import Final

from trunkline.cli.a2a_cli.failures import CommandError, usage
from trunkline.cli.a2a_cli.messages import PartFlag, build_request
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.sending import send_and_wait
from trunkline.cli.a2a_cli.session import AgentSession, CommandContext, open_session
from trunkline.cli.a2a_cli.text_format import INTERRUPTED_STATES
from trunkline.cli.a2a_cli.waiting import TaskProgress, poll_task, time_limit

_PROMPT: Final = "> "
_AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"


async def chat(context: CommandContext) -> None:
    """Talk with an agent, line by line.

    Each line of stdin is sent, until stdin ends. The context goes from turn to turn, and the task
    continues while it asks for input. After an authentication outside of the conversation, an empty
    line continues to wait for the task. On a terminal there is a prompt. If only the input is a
    terminal, nothing is read.

    Raises:
        CommandError: the agent can't be used. Errors of a turn are printed only.
    """
    console = context.console
    is_interactive = console.stdin.isatty() and console.stdout.isatty()
    if console.stdin.isatty() and not is_interactive:
        raise usage("chat reads a terminal only if its output is one", "pipe the messages into it")
    async with open_session(context) as session:
        progress = TaskProgress(context.options.task_id, context.options.context_id)
        while True:
            if is_interactive:
                sys.stderr.write(_PROMPT)
                sys.stderr.flush()
            line = await asyncio.to_thread(console.stdin.readline)
            if not line:
                return
            progress = await _run_turn(session, line.strip(), progress)


async def _run_turn(session: AgentSession, text: str, last: TaskProgress) -> TaskProgress:
    """Send one line; return the identifiers for the next one."""
    context = session.context
    is_waiting = last.state in INTERRUPTED_STATES
    if not text and not (is_waiting and last.state == _AUTH_REQUIRED):
        return last
    printer, progress = ResultPrinter(context), TaskProgress(context_id=last.context_id)
    try:
        async with time_limit(session, progress):
            if not text:
                progress.task_id = last.task_id
                printer.task(await poll_task(session, last.task_id, progress))
            else:
                request = build_request(context.options, [PartFlag("text", text)], context.console)
                request.message.context_id = last.context_id
                is_first = not last.state and bool(last.task_id)
                request.message.task_id = last.task_id if is_waiting or is_first else ""
                printer.response(await send_and_wait(session, request, progress))
    except CommandError as error:
        context.console.warn(f"error: {error}")
        return last
    except Exception as error:  # noqa: BLE001  a turn that fails does not end the conversation
        context.console.warn(f"error: {session.failure(error)}")
        return last
    if progress.message is not None:
        progress.context_id = str(progress.message.get("contextId") or last.context_id)
    return progress
