"""`send`: sends a message, and waits for its task or follows its events."""

import shlex
from contextlib import aclosing
from typing import Annotated, Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.errors import RpcError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import SEND_MESSAGE
from trunkline.cli.a2a_cli.arguments import StreamOption
from trunkline.cli.a2a_cli.messages import PartFlag, build_request, order_parts
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
from trunkline.cli.options import argument, option

_STREAMING: Final = "streaming"


async def send(
    context: CommandContext,
    *,
    message: Annotated[str | None, argument("MESSAGE", "A text, the first part.")] = None,
    text: Annotated[list[str] | None, option("TEXT", "Add a text part.")] = None,
    file: Annotated[
        list[str] | None,
        option("PATH|URL", "Add a file: its bytes, or a URL that the agent fetches."),
    ] = None,
    data: Annotated[
        list[str] | None, option("PATH|-", "Add a JSON file, or JSON from stdin.")
    ] = None,
    media_type: Annotated[
        list[str] | None, option("TYPE", "The type of the part before it.")
    ] = None,
    stream: StreamOption = False,
) -> None:
    """Send a message; start or continue a task.

    Raises:
        CommandError: the message can't be sent, or the wait is over.
    """
    flags = {"text": text, "file": file, "data": data, "media_type": media_type}
    parts = order_parts(context.option_order, flags)
    first = [] if message is None else [PartFlag("text", message)]
    request = build_request(context.options, [*first, *parts], context.console)
    printer = ResultPrinter(context)
    if context.options.verbose:
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
            if context.options.returns_at_once:
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
    limit_s: float = session.context.options.timeout
    response = await session.call(SEND_MESSAGE, request, timeout_s=limit_s)
    progress.apply(response)
    return response


def _announce(context: CommandContext, task_id: str) -> None:
    """Print the id of the task as soon as it is known, so that an interruption does not lose it."""
    # The id is the agent's: it must not become a command of the user's shell.
    command = f"{PROGRAM} task get {context.target} --wait {shlex.quote(task_id)}"
    context.console.warn(f"task {task_id}; `{command}` follows it")
