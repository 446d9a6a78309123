"""Results are checked against the schemas of their tools, and a hostile schema stops nobody."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest

from trunkline.tools import result_checker
from trunkline.tools.child_process import ChildProcess
from trunkline.tools.result_checker import (
    ResultChecker,
    ResultCheckError,
    ResultSchemaError,
    UncheckableSchemaError,
)
from trunkline.tools.result_worker import find_violation

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
# A worker that gets ready and never replies.
SILENT = ("/bin/sh", "-c", "echo null; exec sleep 600")
ONE_REPLY = ("/bin/sh", "-c", "echo null; read schema; read value; echo null")


def dump(schema: object) -> bytes:
    return json.dumps(schema).encode()


class RecordedWorker(ChildProcess):
    """A worker that tests look at."""

    started: list["RecordedWorker"]
    most_alive: int

    @classmethod
    async def start(cls, *args: Any, **options: Any) -> Self:
        worker = await super().start(*args, **options)
        cls.started.append(worker)
        alive = [other for other in cls.started if other.returncode is None]
        cls.most_alive = max(cls.most_alive, len(alive))
        return worker


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> type[RecordedWorker]:
    """Return the class of the workers, which lists them."""
    RecordedWorker.started = []
    RecordedWorker.most_alive = 0
    monkeypatch.setattr(result_checker, "ChildProcess", RecordedWorker)
    return RecordedWorker


@pytest.fixture
async def checker() -> AsyncIterator[ResultChecker]:
    checker = ResultChecker()
    yield checker
    await checker.close()


@pytest.mark.parametrize(
    ("value", "violation"),
    [
        (ANN, None),
        ({"name": "Ann", "age": None}, None),
        ({}, "name: is missing"),
        ({"name": 7}, "name: is not of type string"),
        ({"name": "Ann", "age": -1}, 'age: violates {"anyOf": [{"type": "integer", "minimum": 0'),
        ({"name": "Ann", "more": 1}, "more: is not allowed"),
        ({"name": "Ann", "friends": [{}, 1]}, "friends[1]: is not of type object"),
        (None, "the result: is not of type object"),
    ],
)
def test_a_violation_names_the_member_and_the_rule(value: object, violation: str | None) -> None:
    found = find_violation(dump(PERSON), value)
    assert found == violation or (found or "").startswith(violation or "nothing")


def test_a_violation_is_short_and_has_no_value() -> None:
    schema = {"patternProperties": {"^a": {"enum": ["x" * 1000]}}}
    violation = find_violation(dump(schema), {"a" * 1000: "secret"})
    assert violation is not None
    assert len(violation) < 500
    assert "secret" not in violation


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$schema": 5},
        {"pattern": "("},
        {"$ref": "https://127.0.0.1:1/schema"},
        {"$ref": "#/none"},
        CIRCLE,
        [],
    ],
)
async def test_by_an_invalid_schema_nothing_can_be_checked(
    schema: object, checker: ResultChecker
) -> None:
    with pytest.raises(UncheckableSchemaError, match="its outputSchema is invalid"):
        await checker.check("s", dump(schema), "x")


async def test_results_are_checked_in_one_process_that_stays(
    checker: ResultChecker, workers: type[RecordedWorker]
) -> None:
    await checker.check("s", dump(PERSON), ANN)
    with pytest.raises(ResultSchemaError, match="name: is missing"):
        await checker.check("s", dump(PERSON), {})
    await checker.check("other", dump({"pattern": "^a+$"}), "aa")
    with pytest.raises(ResultSchemaError, match="violates"):
        await checker.check("other", dump({"pattern": "^a+$"}), "b")
    (worker,) = workers.started
    await checker.close()
    assert worker.returncode is not None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"patternProperties": {"(a+)+b": {}}}, {"a" * 60: 1}),
        (DOUBLING, "x"),
        ({"uniqueItems": True}, [{"a": n} for n in range(30_000)]),
    ],
    ids=["pattern", "references", "unique items"],
)
async def test_a_hostile_schema_is_stopped_and_the_next_check_works(
    schema: dict[str, Any],
    value: object,
    checker: ResultChecker,
    workers: type[RecordedWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(result_checker, "TIME_LIMIT_S", 0.1)
        with pytest.raises(ResultCheckError, match=r"more than 0\.1 s"):
            await checker.check("s", dump(schema), value)
    assert workers.started[0].returncode is not None
    await checker.check("s", dump(PERSON), ANN)


async def test_any_number_of_servers_shares_few_processes(
    checker: ResultChecker, workers: type[RecordedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_checker, "_COMMAND", SILENT)
    monkeypatch.setattr(result_checker, "TIME_LIMIT_S", 0.01)

    async def check(server: str) -> None:
        with pytest.raises(ResultCheckError):
            await checker.check(server, b"{}", 1)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(check(f"s{number}"))
    assert len(workers.started) == 8
    assert workers.most_alive <= 3


async def test_one_server_occupies_one_process_and_a_bounded_queue(
    checker: ResultChecker, workers: type[RecordedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_checker, "_COMMAND", SILENT)
    monkeypatch.setattr(result_checker, "TIME_LIMIT_S", 0.01)
    monkeypatch.setattr(result_checker, "_QUEUE_LIMIT", 4)
    problems: list[str] = []

    async def check() -> None:
        try:
            await checker.check("s", b"{}", 1)
        except ResultCheckError as error:
            problems.append(str(error))

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(check())
    assert problems[0] == "too many results of the server wait for their check"
    assert problems[1:] == ["the check takes more than 0.01 s"] * 4
    assert workers.most_alive == 1


async def test_a_cancelled_check_leaves_no_process(
    checker: ResultChecker, workers: type[RecordedWorker]
) -> None:
    # The worker is idle before the check, so that the cancellation meets the check.
    await checker.check("s", dump(PERSON), ANN)
    async with asyncio.TaskGroup() as group:
        check = group.create_task(checker.check("s", dump({"pattern": "(a+)+b"}), "a" * 60))
        await asyncio.sleep(0)
        check.cancel()
    (worker,) = workers.started
    assert worker.returncode is not None


async def test_a_worker_that_ended_is_replaced(
    checker: ResultChecker, workers: type[RecordedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_checker, "_COMMAND", ONE_REPLY)
    await checker.check("s", b"{}", 1)
    await workers.started[0].wait()
    await checker.check("s", b"{}", 1)
    assert len(workers.started) == 2


@pytest.mark.parametrize(
    ("command", "problem"),
    [(("/no/such/program",), "no process can be started"), (("/bin/true",), "memory or time")],
)
async def test_a_process_that_does_not_start_is_a_failed_check(
    checker: ResultChecker, monkeypatch: pytest.MonkeyPatch, command: tuple[str], problem: str
) -> None:
    monkeypatch.setattr(result_checker, "_COMMAND", command)
    with pytest.raises(ResultCheckError, match=problem):
        await checker.check("s", b"{}", 1)
