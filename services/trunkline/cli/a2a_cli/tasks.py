"""`task get`, `list`, `cancel`, `subscribe` and `download`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, BinaryIO, Final
from urllib.parse import urlsplit

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import CANCEL_TASK, LIST_TASKS, find_task_problem
from trunkline.cli.a2a_cli.arguments import HistoryOption, StreamOption, TaskArgument
from trunkline.cli.a2a_cli.console import pretty
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode, usage
from trunkline.cli.a2a_cli.output import CANCELED, ResultPrinter, leave_out
from trunkline.cli.a2a_cli.session import AgentSession, CommandContext, open_session
from trunkline.cli.a2a_cli.text_format import artifact_parts, decode_raw
from trunkline.cli.a2a_cli.waiting import (
    TaskProgress,
    follow_task,
    get_task,
    poll_task,
    time_limit,
)
from trunkline.cli.attachments import open_new_file
from trunkline.cli.options import flag, option
from trunkline.core.json_values import build_struct
from trunkline.errors import (
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
)
from trunkline.journal.artifacts.references import sanitize_filename
from trunkline.v1 import task_pb2

_PEER_ERRORS: Final = (
    PeerUnavailableError,
    PeerTimeoutError,
    PeerProtocolError,
    PeerRefusedError,
)
_STATE_PREFIX: Final = "TASK_STATE_"


async def get(
    context: CommandContext, *, task: TaskArgument, history: HistoryOption = None
) -> None:
    """Show a task; --wait polls it until it ends or asks for input."""
    async with open_session(context) as session:
        progress = TaskProgress(task)
        if context.options.wait:
            async with time_limit(session, progress):
                found = await poll_task(session, task, progress, history)
        else:
            found = await get_task(session, task, history)
        ResultPrinter(context).task(found, has_history=history is not None)


async def cancel(context: CommandContext, *, task: TaskArgument) -> None:
    """Cancel a task. A task that is canceled already is no error."""
    async with open_session(context) as session:
        request = a2a_pb2.CancelTaskRequest(id=task)
        if metadata := context.options.metadata:
            request.metadata.CopyFrom(build_struct(metadata))
        try:
            found = await session.call(CANCEL_TASK, request)
        except Exception as error:
            failure = session.failure(error)
            if failure.code != "TaskNotCancelableError":
                raise
            found = await get_task(session, task)
            if found.get("status", {}).get("state") != CANCELED:
                raise
        ResultPrinter(context).task(found, wanted=CANCELED)


async def list_tasks(
    context: CommandContext,
    *,
    history: HistoryOption = None,
    status: Annotated[str, option("STATE", "Only tasks in this state.")] = "",
    page_size: Annotated[int | None, option("N", "The tasks of a page.", min=0)] = None,
    page_token: Annotated[str, option("TOKEN", "The page to show.")] = "",
    all_pages: Annotated[bool, flag("All pages.", "--all")] = False,
    artifacts: Annotated[bool, flag("With their artifacts.", "--artifacts")] = False,
    stream: StreamOption = False,
) -> None:
    """List tasks."""
    request = a2a_pb2.ListTasksRequest(
        context_id=context.options.context_id,
        page_token=page_token,
        page_size=page_size,
        history_length=history,
        include_artifacts=artifacts or None,
        status=_parse_state(status) if status else task_pb2.TASK_STATE_UNSPECIFIED,
    )
    async with open_session(context) as session:
        response = await session.call(LIST_TASKS, request)
        while all_pages and response.get("nextPageToken"):
            request.page_token = response["nextPageToken"]
            page = await session.call(LIST_TASKS, request)
            tasks = [*response.get("tasks", ()), *page.get("tasks", ())]
            response = {**page, "tasks": tasks}
        tasks = leave_out(context.console, response, "tasks", find_task_problem)
        response = {**response, "tasks": tasks}
        ResultPrinter(context).tasks(response, is_stream=stream)


def _parse_state(state: str) -> task_pb2.TaskState.ValueType:
    name = _STATE_PREFIX + state.upper().replace("-", "_").removeprefix(_STATE_PREFIX)
    if name not in task_pb2.TaskState.keys():  # noqa: SIM118  an enum's wrapper is no mapping
        raise usage(f"--status: A2A has no state {state!r}")
    return task_pb2.TaskState.Value(name)


async def subscribe(
    context: CommandContext, *, task: TaskArgument, stream: StreamOption = False
) -> None:
    """Follow a task's events, until the task ended or asks for input.

    As JSON without `--stream`, only the task at its end is printed.
    """
    async with open_session(context) as session:
        session.require("streaming", "UnsupportedOperationError", "streaming")
        printer = ResultPrinter(context)
        progress = TaskProgress(task)
        async with time_limit(session, progress):
            async with aclosing(follow_task(session, progress)) as events:
                async for event in events:
                    if stream or not context.options.is_json:
                        printer.event(event)
            if stream or not context.options.is_json:
                printer.end_of_stream(progress)
            else:
                printer.task(await get_task(session, task))


async def download(
    context: CommandContext,
    *,
    task: TaskArgument,
    folder: Annotated[str, option("DIR", "The folder.", "--dir", show_default=True)] = ".",
) -> None:
    """Save a task's artifacts under unused names, and print the paths.

    Raises:
        CommandError: a part can't be saved; the other parts are.
    """
    target = context.console.folder / folder
    async with open_session(context) as session:
        found = await get_task(session, task)
        paths: list[Path] = []
        failures: list[CommandError] = []
        try:
            await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
            for artifact, part in artifact_parts(found):
                try:
                    paths.append(await _save(session, artifact, part, target))
                except CommandError as failure:
                    failures.append(failure)
        except OSError as error:
            raise CommandError(
                LocalCode.INTERNAL, f"{target} can't be written: {error.strerror}"
            ) from error
        # A2A has no type for saved files: the task is the result, and the paths are diagnostics.
        if failures or context.options.is_json:
            for path in paths:
                context.console.warn(f"saved {path}")
        if failures:
            raise failures[0]
        fields: list[tuple[str, object]] = [
            ("Task", task),
            ("Context", found.get("contextId", "")),
            ("State", found.get("status", {}).get("state", "")),
            *(("Saved", path) for path in paths),
        ]
        ResultPrinter(context).fields(found, fields)


async def _save(session: AgentSession, artifact: Json, part: Json, folder: Path) -> Path:
    name = sanitize_filename(str(part.get("filename") or ""))
    stem = sanitize_filename(str(artifact.get("name") or artifact.get("artifactId") or "artifact"))
    url, content = "", b""
    if "text" in part:
        name, content = name or f"{stem}.txt", str(part["text"]).encode()
    elif "data" in part:
        name, content = name or f"{stem}.json", pretty(part["data"]).encode()
    elif "url" in part:
        url = str(part["url"])
    else:
        content = decode_raw(part)
    with open_new_file(folder, name or stem or "file") as (path, file):
        file.write(content)
        if url:
            await _fetch(session, url, file)
    return path


async def _fetch(session: AgentSession, url: str, file: BinaryIO) -> None:
    """Write what a URL has to a file. CommandError: it can't be fetched."""
    try:
        async with aclosing(_download(session, url)) as pieces:
            async for piece in pieces:
                file.write(piece)
    except _PEER_ERRORS as error:
        failure = session.failure(error)
        # The file may be elsewhere than the agent.
        failure.message, failure.hint = f"{url} can't be fetched: {error.problem}", None
        raise failure from error


async def _download(session: AgentSession, url: str) -> AsyncGenerator[bytes]:
    """Yield a file. Only the agent's own origin gets the credentials."""
    if urlsplit(url)[:2] == urlsplit(session.interface.url)[:2]:
        async with aclosing(session.client.download(url, is_resumed=True)) as pieces:
            async for piece in pieces:
                yield piece
        return
    async with session.context.anonymous_http() as http, http.download(url) as (_, parts):
        async for piece in parts:
            yield piece
