"""`task get`, `list`, `cancel`, `subscribe` and `download`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from trunkline.a2a.v1 import a2a_pb2
from trunkline.artifacts.references import sanitize_filename
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
from trunkline.errors import (
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
)
from trunkline.json_values import build_struct
from trunkline.v1 import task_pb2
from trunkline_bridge.client.operations import CANCEL_TASK, LIST_TASKS, find_task_problem
from trunkline_bridge.versions.json_values import Json

_PEER_ERRORS: Final = (
    PeerUnavailableError,
    PeerTimeoutError,
    PeerProtocolError,
    PeerRefusedError,
)
_STATE_PREFIX: Final = "TASK_STATE_"


async def get(context: CommandContext, task_id: str, *, history: int | None) -> None:
    """Print a task; with `--wait`, once it ended or asks for input."""
    async with open_session(context) as session:
        progress = TaskProgress(task_id)
        if context.configuration.get("wait"):
            async with time_limit(session, progress):
                task = await poll_task(session, task_id, progress, history)
        else:
            task = await get_task(session, task_id, history)
        ResultPrinter(context).task(task, has_history=history is not None)


async def cancel(context: CommandContext, task_id: str) -> None:
    """Cancel a task and print it. A task that is canceled already is no error."""
    async with open_session(context) as session:
        request = a2a_pb2.CancelTaskRequest(id=task_id)
        if metadata := context.configuration.get("metadata"):
            request.metadata.CopyFrom(build_struct(metadata))
        try:
            task = await session.call(CANCEL_TASK, request)
        except Exception as error:
            failure = session.failure(error)
            if failure.code != "TaskNotCancelableError":
                raise
            task = await get_task(session, task_id)
            if task.get("status", {}).get("state") != CANCELED:
                raise
        ResultPrinter(context).task(task, wanted=CANCELED)


async def list_tasks(
    context: CommandContext, filters: Mapping[str, Any], *, is_stream: bool
) -> None:
    """Print a page of tasks, or with the filter `all` every page."""
    request = _list_request(context, filters)
    async with open_session(context) as session:
        response = await session.call(LIST_TASKS, request)
        while filters.get("all") and response.get("nextPageToken"):
            request.page_token = response["nextPageToken"]
            page = await session.call(LIST_TASKS, request)
            tasks = [*response.get("tasks", ()), *page.get("tasks", ())]
            response = {**page, "tasks": tasks}
        tasks = leave_out(context.console, response, "tasks", find_task_problem)
        response = {**response, "tasks": tasks}
        ResultPrinter(context).tasks(response, is_stream=is_stream)


def _list_request(context: CommandContext, filters: Mapping[str, Any]) -> a2a_pb2.ListTasksRequest:
    request = a2a_pb2.ListTasksRequest(
        context_id=context.configuration.text("context_id"),
        page_token=filters.get("page_token") or "",
    )
    if filters.get("page_size") is not None:
        request.page_size = filters["page_size"]
    if filters.get("history") is not None:
        request.history_length = filters["history"]
    if filters.get("artifacts"):
        request.include_artifacts = True
    if state := filters.get("status"):
        name = _STATE_PREFIX + state.upper().replace("-", "_").removeprefix(_STATE_PREFIX)
        if name not in task_pb2.TaskState.keys():  # noqa: SIM118  an enum's wrapper is no mapping
            raise usage(f"--status: A2A has no state {state!r}")
        request.status = task_pb2.TaskState.Value(name)
    return request


async def subscribe(context: CommandContext, task_id: str, *, is_stream: bool) -> None:
    """Follow a task until it ended or asks for input; print its events, or with JSON its end."""
    async with open_session(context) as session:
        session.require("streaming", "UnsupportedOperationError", "streaming")
        printer = ResultPrinter(context)
        progress = TaskProgress(task_id)
        async with time_limit(session, progress):
            async with aclosing(follow_task(session, task_id, progress)) as events:
                async for event in events:
                    if is_stream or not context.configuration.is_json:
                        printer.event(event)
            if is_stream or not context.configuration.is_json:
                printer.end_of_stream(progress)
            else:
                printer.task(await get_task(session, task_id))


async def download(context: CommandContext, task_id: str, folder: Path) -> None:
    """Save the parts of a task's artifacts in a folder, under unused names; print the paths.

    Raises:
        CommandError: a part can't be saved; the other parts are.
    """
    folder = context.console.folder / folder
    async with open_session(context) as session:
        task = await get_task(session, task_id)
        paths: list[Path] = []
        failures: list[CommandError] = []
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            for artifact, part in artifact_parts(task):
                try:
                    paths.append(await _save(session, artifact, part, folder))
                except CommandError as failure:
                    failures.append(failure)
        except OSError as error:
            raise CommandError(
                LocalCode.INTERNAL, f"{folder} can't be written: {error.strerror}"
            ) from error
        # A2A has no type for saved files: the task is the result, and the paths are diagnostics.
        if failures or context.configuration.is_json:
            for path in paths:
                context.console.warn(f"saved {path}")
        if failures:
            raise failures[0]
        fields: list[tuple[str, object]] = [
            ("Task", task_id),
            ("Context", task.get("contextId", "")),
            ("State", task.get("status", {}).get("state", "")),
            *(("Saved", path) for path in paths),
        ]
        ResultPrinter(context).fields(task, fields)


async def _save(session: AgentSession, artifact: Json, part: Json, folder: Path) -> Path:
    name = sanitize_filename(str(part.get("filename") or ""))
    stem = sanitize_filename(str(artifact.get("name") or artifact.get("artifactId") or "artifact"))
    if "text" in part or "data" in part:
        content = str(part["text"]) if "text" in part else pretty(part.get("data"))
        path = _unused_path(folder, name or f"{stem}.{'txt' if 'text' in part else 'json'}")
        await asyncio.to_thread(path.write_text, content, "utf-8")
        return path
    path = _unused_path(folder, name or stem or "file")
    if "url" not in part:
        await asyncio.to_thread(path.write_bytes, decode_raw(part))
        return path
    url = str(part["url"])
    try:
        with path.open("xb") as file:
            async with aclosing(_download(session, url)) as pieces:
                async for piece in pieces:
                    file.write(piece)
    except _PEER_ERRORS as error:
        path.unlink(missing_ok=True)
        failure = session.failure(error)
        # The file may be elsewhere than the agent.
        failure.message, failure.hint = f"{url} can't be fetched: {error.problem}", None
        raise failure from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


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


def _unused_path(folder: Path, name: str) -> Path:
    path, number = folder / name, 1
    # A broken link counts as used, too.
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path
