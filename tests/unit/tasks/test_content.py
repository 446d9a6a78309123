"""Mappings of authors are stored as JSON, or refused with ValueError."""

import math
from typing import TYPE_CHECKING

import pytest

from harness.agents.inline_agents import OpenHost, define, finish, texts
from trunkline.core.json_values import build_struct, value_json
from trunkline.errors import InvalidArgumentError, UnsupportedOperationError
from trunkline.tasks.content import build_agent_message, to_part
from trunkline.tasks.context import TaskContext
from trunkline.tasks.messages import Reply
from trunkline.v1 import part_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.mark.parametrize(
    "values",
    [
        {"a": math.nan},
        {"a": -math.inf},
        {"a": object()},
        {"a": "\ud800"},
        {1: "a"},
        {"a": [{2: "b"}]},
    ],
)
def test_a_value_that_is_not_json_is_a_value_error(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        build_struct(values)


def test_a_json_object_is_a_data_part() -> None:
    part = to_part({"a": [1, "b"]})
    assert (part.media_type, value_json(part.data)) == ("application/json", {"a": [1, "b"]})
    assert to_part(part) is part
    sent = build_agent_message({"a": 1}, task_id="t", context_id="c")
    assert value_json(sent.parts[0].data) == {"a": 1}


@pytest.mark.parametrize("values", [{"a": 10**309}, {"a": object()}])
def test_an_object_that_is_no_json_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match="content"):
        to_part(values)


async def test_calls_and_messages_need_a_mesh(open_host: OpenHost) -> None:
    refused: list[str] = []

    async def alone(task: TaskContext) -> str:
        async def read_stream() -> None:
            async for _ in task.stream("math", "2+2"):
                pass

        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "ask": lambda: task.ask("math", "2+2"),
            "stream": read_stream,
            "tool": lambda: task.call_tool("time/now"),
            "send": lambda: task.send("math", "hi", priority="high"),
            "publish": lambda: task.publish("lab", "hi"),
            "request": lambda: task.request("math", "hi"),
        }
        for name, call in calls.items():
            try:
                await call()
            except UnsupportedOperationError:
                refused.append(name)
        assert not task.questions
        assert task.incoming is None
        return f"{task.agent} {task.attempt} {task.state}"

    host = await open_host(define(alone))
    assert texts(await finish(host)) == ["tested 1 submitted"]
    assert refused == ["ask", "stream", "tool", "send", "publish", "request"]
    assert Reply("x").priority is None


async def test_inline_content_is_read_and_usage_is_counted(open_host: OpenHost) -> None:
    async def reader(task: TaskContext) -> str:
        task.report_usage("openai:x", input_tokens=3, output_tokens=4)
        async with task.open(part_pb2.Part(raw=b"abc")) as pieces:
            content = b"".join([piece async for piece in pieces])
        text = await task.read(part_pb2.Part(text="def"))
        with pytest.raises(InvalidArgumentError, match="bytes"):
            await task.read(part_pb2.Part(text="x" * 10), limit_bytes=5)
        with pytest.raises(InvalidArgumentError):
            task.report_usage("openai:x", input_tokens=-1, output_tokens=0)
        return (content + text).decode()

    host = await open_host(define(reader))
    snapshot = await finish(host)
    assert texts(snapshot) == ["abcdef"]
