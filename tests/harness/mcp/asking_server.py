"""An MCP server of version 2026-07-28 whose tools ask, and run as tasks (SEP-2663).

Over stdio, or over HTTP on the port of an argument. What it does is a line of the file `log` in
ASKING_FOLDER, which also holds its tasks, so that they outlive the process.
"""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    RequestParams,
    Result,
    ToolAnnotations,
)

FOLDER = Path(os.environ.get("ASKING_FOLDER", "."))
SEATS = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "description": "How many people come."},
        "view": {"type": "string", "enum": ["garden", "street"]},
    },
    "required": ["seats", "view"],
}

SUGAR = {"type": "object", "properties": {"sugar": {"type": "boolean"}}, "required": ["sugar"]}


def log(line: str) -> None:
    with (FOLDER / "log").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def ask(message: str, schema: dict[str, Any]) -> ElicitRequest:
    params = ElicitRequestFormParams.model_validate(
        {"message": message, "requestedSchema": schema}, by_name=False
    )
    return ElicitRequest(params=params)


class _TaskParams(RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any]


class _Created(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str = "2026-07-28T00:00:00Z"
    last_updated_at: str = "2026-07-28T00:00:00Z"
    ttl_ms: int | None = None
    poll_interval_ms: int = 50


class _State(_Created):
    result_type: Literal["complete"] = "complete"  # type: ignore[assignment]
    status_message: str | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


class Tasks(Extension):
    """Makes each call of the tool `bake` a task, which ends when the file `done` appears.

    The answer that names the task is held back while there is a file `slow`.
    """

    identifier = "io.modelcontextprotocol/tasks"

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding("tasks/get", _TaskParams, self._get),
            MethodBinding("tasks/update", _UpdateParams, self._update),
            MethodBinding("tasks/cancel", _TaskParams, self._cancel),
        ]

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        if params.name not in ("bake", "bake_to_taste"):
            return await call_next(ctx)
        task_id = uuid.uuid4().hex
        self._write(task_id, {"tool": params.name, "cake": (params.arguments or {})["cake"]})
        log(f"bake {task_id}")
        async with asyncio.timeout(300):
            while (FOLDER / "slow").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return _Created(task_id=task_id, status="working")

    async def _get(self, _ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> _State:
        (FOLDER / "polled").touch()
        task = self._read(params.task_id)
        if task.get("canceled"):
            return _State(task_id=params.task_id, status="cancelled")
        if task["tool"] == "bake_to_taste" and "sugar" not in task:
            request = ask("Sweet?", SUGAR).model_dump(by_alias=True, mode="json", exclude_none=True)
            requests = {"taste": request}
            return _State(task_id=params.task_id, status="input_required", input_requests=requests)
        if (FOLDER / "done").exists():
            text = f"a {task.get('sugar', 'plain')} {task['cake']}"
            result = {
                "content": [{"type": "text", "text": text}],
                "structuredContent": {"result": text},
            }
            return _State(task_id=params.task_id, status="completed", result=result)
        return _State(task_id=params.task_id, status="working", status_message="in the oven")

    async def _update(self, _ctx: ServerRequestContext[Any, Any], params: _UpdateParams) -> Result:
        task = self._read(params.task_id)
        task["sugar"] = "sweet" if params.input_responses["taste"]["content"]["sugar"] else "plain"
        self._write(params.task_id, task)
        log(f"answered {params.task_id}")
        return Result()

    async def _cancel(self, _ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> Result:
        self._write(params.task_id, self._read(params.task_id) | {"canceled": True})
        log(f"canceled {params.task_id}")
        return Result()

    def _read(self, task_id: str) -> dict[str, Any]:
        file = FOLDER / f"task-{task_id}"
        if not file.exists():
            raise MCPError(INVALID_PARAMS, "Task not found")
        task: dict[str, Any] = json.loads(file.read_text())
        return task

    def _write(self, task_id: str, task: dict[str, Any]) -> None:
        (FOLDER / f"task-{task_id}").write_text(json.dumps(task))


server = MCPServer(
    "asking",
    request_state_security=RequestStateSecurity(keys=[b"a key of thirty-two bytes......."]),
    extensions=[Tasks()],
)
_MATCH = [{"pattern": "book a table in (.+)", "arguments": {"city": "{1}"}}]
_BAKE = [{"pattern": "^bake (.+)$", "arguments": {"cake": "{1}"}}]
_TASTE = [{"pattern": "^sweeten (.+)$", "arguments": {"cake": "{1}"}}]


@server.tool(
    title="Book a table",
    annotations=ToolAnnotations(destructive_hint=True),
    meta={"trunkline/match": _MATCH},
)
async def book_table(city: str, ctx: Context) -> str | InputRequiredResult:
    """Book a table in a city."""
    answer = (ctx.input_responses or {}).get("table")
    if not isinstance(answer, ElicitResult):
        log(f"asked for {city}")
        return InputRequiredResult(
            input_requests={"table": ask(f"A table in {city}?", SEATS)},
            request_state=f"state of {city}",
        )
    log(f"{answer.action} {json.dumps(answer.content)} with {ctx.request_state}")
    if answer.action != "accept":
        return f"No table in {city}."
    return f"A table in {city} for {(answer.content or {})['seats']}."


@server.tool(meta={"trunkline/match": []})
async def sign(ctx: Context) -> str | InputRequiredResult:
    """Ask for two consents at once."""
    answers = ctx.input_responses or {}
    consents = [answers.get(name) for name in ("news", "terms")]
    if not all(isinstance(consent, ElicitResult) for consent in consents):
        requests = {
            name: ask(f"{name}?", {"type": "object", "properties": {name: {"type": "boolean"}}})
            for name in ("news", "terms")
        }
        return InputRequiredResult(input_requests=dict(requests))
    return " ".join(str(c.content) for c in consents if isinstance(c, ElicitResult))


@server.tool(annotations=ToolAnnotations(destructive_hint=True), meta={"trunkline/match": _BAKE})
async def bake(cake: str) -> str:
    """Bake a cake, as a task."""
    return cake


@server.tool(annotations=ToolAnnotations(destructive_hint=True), meta={"trunkline/match": _TASTE})
async def bake_to_taste(cake: str) -> str:
    """Bake a cake, as a task that asks."""
    return cake


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
