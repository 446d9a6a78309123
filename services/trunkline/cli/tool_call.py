"""Calls a tool by hand: checks its arguments, asks what its call needs, and prints its result."""

import asyncio
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from trunkline.agents.calls.tool_questions import (
    build_continuation,
    build_pending,
    keep_answer,
    read_lines,
    render_missing,
    render_question,
)
from trunkline.cli.attachments import create_file
from trunkline.cli.directory import open_directory
from trunkline.cli.exits import ExitCode
from trunkline.cli.part_text import render_part
from trunkline.cli.terminal import print_json, print_progress, print_stderr
from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import message_to_dict, struct_json
from trunkline.errors import InvalidArgumentError, PeerTimeoutError
from trunkline.tasks.approvals import digest_call, parse_arguments, render_arguments
from trunkline.v1 import tool_service_pb2
from trunkline.workflows.schemas import find_argument_problem

_AGREEMENTS: Final = frozenset({"y", "yes", "approve"})


def parse_text(text: str) -> dict[str, Any]:
    """Return the arguments of a JSON object, with numbers exact.

    Raises:
        InvalidArgumentError: it is no JSON object, or a message can't carry it.
    """
    if not text.strip():
        return {}
    try:
        parse_arguments(text)
    except ValueError:
        problem = 'is not a JSON object, such as {"count": 1}; or give --arg NAME=VALUE'
        raise InvalidArgumentError("JSON", problem) from None
    arguments: dict[str, Any] = json.loads(text)
    return arguments


def parse_pairs(pairs: Sequence[str], tool: tool_service_pb2.Tool) -> dict[str, Any]:
    """Return the arguments of NAME=VALUE pairs. A value is JSON, or else a text.

    It is always a text where the schema allows only that.

    Raises:
        InvalidArgumentError: a pair has no name, or its value can't be sent.
    """
    properties = struct_json(tool.input_schema).get("properties", {})
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not (name and sign):
            raise InvalidArgumentError("--arg", f"{pair!r} is not NAME=VALUE")
        schema = properties.get(name)
        is_text = isinstance(schema, Mapping) and schema.get("type") == "string"
        arguments[name] = text if is_text else _parse_value(name, text)
    return arguments


def _parse_value(name: str, text: str) -> JsonValue:
    try:
        return parse_text(f'{{"value": {text}}}')["value"]
    except (InvalidArgumentError, LookupError):
        if text[:1] in {"{", "["}:
            raise InvalidArgumentError("--arg", f"the value of {name} is not JSON") from None
        return text


def check_arguments(tool: tool_service_pb2.Tool, arguments: Mapping[str, Any]) -> None:
    """Check that no required argument is missing, and that all fit the tool's schema.

    Raises:
        InvalidArgumentError: one is missing. The error also names arguments that the tool does not
            have, since one of them may be the missing one, misspelled. Or one does not fit.
    """
    schema = struct_json(tool.input_schema)
    see = f"see `trunkline tools show {tool.server}/{tool.name}`"
    missing = [str(name) for name in schema.get("required", ()) if name not in arguments]
    if missing:
        unknown = [repr(name) for name in arguments if name not in schema.get("properties", {})]
        label = f"{tool.server}/{tool.name}"
        problem = f"{label} also needs {', '.join(missing)}"
        if unknown:
            problem += f", and has no {', '.join(unknown)}"
        raise InvalidArgumentError("JSON", f"{problem}; {see}")
    if problem := find_argument_problem(schema, arguments):
        raise InvalidArgumentError("JSON", f"{problem}; {see}")


def ask_for_approval(
    tool: tool_service_pb2.Tool, request: tool_service_pb2.CallToolRequest
) -> ExitCode | None:
    """Ask the user to approve a call. Return None if they do, else the exit code."""
    arguments = render_arguments(request.arguments)
    question = f"{tool.server}/{tool.name} with {arguments} needs your approval"
    if not _can_ask():
        print_stderr(f"{question}: call it on a terminal, or add --yes")
        return ExitCode.INPUT_REQUIRED
    # Not by `input`, which could print it to stdout, where the result goes.
    print(f"{question}. Call it? [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().casefold() in _AGREEMENTS:
        return None
    print_stderr("not called")
    return ExitCode.FAILED


def ask_question(
    tool: str, question: tool_service_pb2.ToolQuestion
) -> tool_service_pb2.ToolContinuation | None:
    """Ask the user what a tool asks.

    Returns:
        The continuation of the call, or None if nobody answers.
    """
    pending = build_pending(tool, question)
    print_stderr(render_question(pending))
    lines: list[str] = []
    while _can_ask():
        try:
            lines.append(input())
        except EOFError:
            break
        answer = read_lines(pending, lines)
        if answer.is_complete:
            return build_continuation(pending, answer.responses)
        if answer.missing:
            print_stderr(render_missing(answer.missing))
            continue
        # The next request of the same question.
        keep_answer(pending, answer)
        lines.clear()
        print_stderr(render_question(pending))
    print_stderr("the tool asks: call it on a terminal to answer")
    return None


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def approve_call(request: tool_service_pb2.CallToolRequest, arguments: Mapping[str, Any]) -> None:
    """Add the approval to a call. It belongs to no agent's task, so its id is random."""
    request.task_id = f"by-hand-{secrets.token_hex(8)}"
    request.approval_id = f"{request.task_id}.1"
    label = f"{request.server}/{request.tool}"
    request.approval_digest = digest_call(request.approval_id, label, arguments)


async def call_tool(
    request: tool_service_pb2.CallToolRequest, mesh: str | None, *, timeout_s: float | None
) -> tool_service_pb2.ToolResult:
    """Call a tool and return its result, which may be a question. Progress goes to stderr.

    Raises:
        PeerTimeoutError: the call took longer than `timeout_s`, or than the server's own limit.
        PeerUnavailableError, ToolServerUnavailableError: the mesh or the server is down.
    """
    if timeout_s is not None:
        request.deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=timeout_s))

    handle = request.continuation.task_handle
    response = tool_service_pb2.CallToolResponse()
    async with open_directory(mesh, is_traced=True) as directory:
        client = directory.tool_client()
        try:
            async with aclosing(client.call_tool(request)) as responses:
                async for response in responses:
                    if response.HasField("progress"):
                        _print_tool_progress(response.progress)
                    elif response.HasField("task"):
                        handle = response.task.handle
        except (asyncio.CancelledError, PeerTimeoutError):
            if handle:
                await client.cancel_tool_task(
                    tool_service_pb2.CancelToolTaskRequest(
                        server=request.server, tool=request.tool, handle=handle
                    )
                )
            raise
    return response.result


def _print_tool_progress(progress: tool_service_pb2.ToolProgress) -> None:
    total = f" of {progress.total:g}" if progress.total else ""
    print_progress(progress.message or f"{progress.progress:g}{total}")


async def cancel_call(
    request: tool_service_pb2.CallToolRequest, handle: str, mesh: str | None
) -> None:
    """Cancel the task of an MCP server, or the open call, that asks.

    A call without a handle has ended.
    """
    if not handle:
        return
    async with open_directory(mesh) as directory:
        await directory.tool_client().cancel_tool_task(
            tool_service_pb2.CancelToolTaskRequest(
                server=request.server, tool=request.tool, handle=handle
            )
        )


def print_result(result: tool_service_pb2.ToolResult, *, as_json: bool) -> None:
    """Print a result to stdout, or the text of a failure to stderr."""
    if as_json:
        print_json(message_to_dict(result, with_proto_names=True))
        return
    lines = [render_part(part) for part in result.content]
    if not lines and result.HasField("structured_content"):
        lines = [json.dumps(struct_json(result.structured_content), ensure_ascii=False)]
    if result.is_error:
        print_stderr("\n".join(lines) or "the tool failed and does not say why")
    elif lines:
        print("\n".join(lines))


def save_files(result: tool_service_pb2.ToolResult, folder: Path) -> None:
    """Save the files of a result. ConfigurationError: one can't be saved."""
    for part in result.content:
        if part.HasField("raw"):
            with create_file(folder, part.filename) as file:
                file.write(part.raw)
