"""`send`: sends a message, and waits for its task or follows its events."""

import shlex
from contextlib import aclosing
from typing import Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.errors import RpcError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import SEND_MESSAGE
from trunkline.cli.a2a_cli.declaration import STREAM, argument, command
from trunkline.cli.a2a_cli.messages import AddPart, PartFlag, build_request
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.session import AgentSession, CommandContext, open_session
from trunkline.cli.a2a_cli.text_format import PROGRAM
from trunkline.cli.a2a_cli.waiting import (
    TaskProgress,
    get_task,
    poll_task,
    stream_turn,
    time_limit,
)

_STREAMING: Final = "streaming"


@command(
    "send",
    "Send a message; start or continue a task.",
    argument("message", nargs="?", help="a text, the first part of the message"),
    argument("--text", action=AddPart, dest="parts", metavar="TEXT", help="add a text part"),
    argument(
        "--file",
        action=AddPart,
        dest="parts",
        metavar="PATH|URL",
        help="add a file: its bytes, or a URL that the agent fetches",
    ),
    argument(
        "--data",
        action=AddPart,
        dest="parts",
        metavar="PATH|-",
        help="add a JSON file, or JSON from stdin",
    ),
    argument(
        "--media-type",
        action=AddPart,
        dest="parts",
        metavar="TYPE",
        help="the type of the part before it",
    ),
    STREAM,
)
async def send(
    context: CommandContext, *, message: str | None, parts: list[PartFlag] | None, stream: bool
) -> None:
    """Send a message and print the result.

    Raises:
        CommandError: the message can't be sent, or the wait is over.
    """
    text = [] if message is None else [PartFlag("text", message)]
    request = build_request(context.configuration, [*text, *(parts or ())], context.console)
    printer = ResultPrinter(context)
    if context.configuration.get("verbose"):
        printer.sent(SEND_MESSAGE.params_json(request))
    async with open_session(context) as session:
        progress = TaskProgress(announced=lambda task_id: _announce(context, task_id))
        async with time_limit(session, progress):
            if stream and session.card.declares(_STREAMING):
                async with aclosing(stream_turn(session, request, progress)) as events:
                    async for event in events:
                        printer.event(event)
                printer.end_of_stream(progress)
                return
            if stream:
                context.console.warn("warning: the agent does not stream; waiting for its result")
            if context.configuration.get("async"):
                response = await _send_only(session, request, progress, is_immediate=True)
            else:
                response = await send_and_wait(session, request, progress)
            printer.response(response)


async def send_and_wait(
    session: AgentSession, request: a2a_pb2.SendMessageRequest, progress: TaskProgress
) -> Json:
    """Send a message and return the response once its task ended or asks for input."""
    if session.card.declares(_STREAMING):
        try:
            async with aclosing(stream_turn(session, request, progress)) as events:
                async for event in events:
                    session.context.note(f"event: {', '.join(event)}")
        except RpcError as error:
            # The agent ended the stream with an error; the task tells what became of the turn.
            if not progress.task_id:
                raise
            session.context.console.warn(f"warning: the stream failed ({error}); polling the task")
            return {"task": await poll_task(session, progress.task_id, progress)}
    else:
        # The response to a message for a task that asks for input may still have its old state,
        # unless the agent answers at the end of the turn.
        is_new = not request.message.task_id
        response = await _send_only(session, request, progress, is_immediate=is_new)
        if progress.is_over:
            return response
        return {"task": await poll_task(session, progress.task_id, progress)}
    if progress.message is not None:
        return {"message": progress.message}
    return {"task": await get_task(session, progress.task_id)}


async def _send_only(
    session: AgentSession,
    request: a2a_pb2.SendMessageRequest,
    progress: TaskProgress,
    *,
    is_immediate: bool,
) -> Json:
    request.configuration.return_immediately = is_immediate
    limit_s: float = session.context.configuration.get("timeout")
    response = await session.call(SEND_MESSAGE, request, timeout_s=limit_s)
    progress.apply(response)
    return response


def _announce(context: CommandContext, task_id: str) -> None:
    """Print the id of the task as soon as it is known, so that an interruption does not lose it."""
    # The id is the agent's: it must not become a command of the user's shell.
    command = f"{PROGRAM} task get {context.target} --wait {shlex.quote(task_id)}"
    context.console.warn(f"task {task_id}; `{command}` follows it")
