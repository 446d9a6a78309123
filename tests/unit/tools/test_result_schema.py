"""Results are checked against the schemas of their tools, and a hostile schema stops nobody."""

import asyncio
import time
from typing import Any

import pytest

from trunkline.tools import result_schema
from trunkline.tools.result_schema import (
    ResultCheckTimeoutError,
    ResultSchema,
    ResultSchemaError,
)

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/Friend"}},
        "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"Friend": {"type": "object", "properties": {"since": {"format": "date"}}}},
}
ANN = {"name": "Ann", "age": 3, "friends": [{"since": "2020-01-01"}]}
DOUBLING = {
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)},
        "d60": {"type": "string"},
    },
    "$ref": "#/$defs/d0",
}
CIRCLE = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}


@pytest.fixture
def refuse_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_schema, "_COMMAND", ("/no/such/program",))


@pytest.mark.usefixtures("refuse_processes")
@pytest.mark.parametrize(
    ("value", "violation"),
    [
        (ANN, None),
        ({"name": "Ann", "age": None}, None),
        ({}, "required"),
        ({"name": 7}, "type"),
        ({"name": "Ann", "age": -1}, "anyOf"),
        ({"name": "Ann", "more": 1}, "additionalProperties"),
        ({"name": "Ann", "friends": [1]}, "type"),
        (None, "type"),
    ],
)
async def test_a_usual_schema_is_checked_without_a_process(
    value: object, violation: str | None
) -> None:
    schema = ResultSchema(PERSON)
    if violation is None:
        await schema.check(value)
    else:
        with pytest.raises(ResultSchemaError, match=violation):
            await schema.check(value)


@pytest.mark.usefixtures("refuse_processes")
async def test_an_invalid_schema_is_an_error() -> None:
    with pytest.raises(ResultSchemaError, match="schema is invalid"):
        await ResultSchema({"type": "no such type"}).check({})


async def test_other_schemas_are_checked_in_a_process() -> None:
    schema = ResultSchema({"properties": {"id": {"type": "string", "pattern": "^a+$"}}})
    await schema.check({"id": "aaa"})
    with pytest.raises(ResultSchemaError, match="pattern"):
        await schema.check({"id": "b"})
    with pytest.raises(ResultSchemaError, match="invalid"):
        await ResultSchema({"pattern": "("}).check("a")
    with pytest.raises(ResultSchemaError, match="ref"):
        await ResultSchema({"$ref": "https://127.0.0.1:1/schema"}).check("a")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "(a+)+b"}, "a" * 60),
        ({"patternProperties": {"(a+)+b": {}}}, {"a" * 60: 1}),
        (DOUBLING, "x"),
        ({"uniqueItems": True}, [{"a": n} for n in range(30_000)]),
    ],
    ids=["pattern", "pattern of names", "references", "unique items"],
)
async def test_a_hostile_schema_is_stopped_and_blocks_nobody(
    schema: dict[str, Any], value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_schema, "TIME_LIMIT_S", 1.5)
    started = time.process_time()
    with pytest.raises(ResultCheckTimeoutError):
        await ResultSchema(schema).check(value)
    # Our own process did next to nothing.
    assert time.process_time() - started < 5


async def test_a_circle_of_references_is_a_violation() -> None:
    with pytest.raises(ResultSchemaError):
        await ResultSchema(CIRCLE).check("x")


async def test_a_cancelled_check_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[asyncio.subprocess.Process] = []
    create = asyncio.create_subprocess_exec

    async def record(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        processes.append(await create(*command, **options))
        started.set()
        return processes[0]

    started = asyncio.Event()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", record)
    async with asyncio.TaskGroup() as group:
        check = group.create_task(ResultSchema({"pattern": "(a+)+b"}).check("a" * 60))
        await started.wait()
        check.cancel()
    assert processes[0].returncode is not None


@pytest.mark.usefixtures("refuse_processes")
async def test_large_results_and_schemas_are_left_to_a_process() -> None:
    for schema, value in (
        (PERSON, {"name": "x" * 5_000_000}),
        (PERSON, {"name": "Ann", "friends": [{}] * 20_000}),
        ({"enum": ["x" * 40_000]}, "x"),
        ({"properties": {"a": {"type": [{"pattern": "a"}]}}}, {}),
    ):
        with pytest.raises(FileNotFoundError):
            await ResultSchema(schema).check(value)
