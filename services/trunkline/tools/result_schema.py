"""Checks structured results of tools against the schemas that their servers declare.

Both come from the server, and together they may take any time: `pattern` backtracks, and references
multiply. So only a check whose steps are few for certain runs here. Any other runs in a process
that a deadline ends. Run as a script, this file is that process: it reads {"schema", "value"} as
JSON and writes {"violation"}. It imports nothing of ours, which would load the whole mesh.
"""

import asyncio
import json
import math
import os
import re
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

TIME_LIMIT_S: Final = 30.0
_CPU_LIMIT_S: Final = 10
_MEMORY_LIMIT_BYTES: Final = 1 << 30
# A check here takes less than 50 ms.
_STEP_LIMIT: Final = 20_000
_CHAR_LIMIT: Final = 5_000_000
_SCHEMA_LIMIT_CHARS: Final = 32_768
_DEPTH_LIMIT: Final = 50
_COMMAND: Final = (sys.executable, "-P", __file__)
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT")
# Keywords that take constant time for each value, or time linear in the value and the keyword.
_SIMPLE_WORDS: Final = (
    "$schema $comment title description default examples format deprecated readOnly writeOnly "
    "type required enum const minimum maximum exclusiveMinimum exclusiveMaximum minLength "
    "maxLength minItems maxItems minProperties maxProperties $defs definitions"
)
_SIMPLE: Final = frozenset(_SIMPLE_WORDS.split())
# Names that stand for themselves in a JSON pointer.
_REFERENCE: Final = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.-]+)")
_SCHEMA: Final = frozenset({"items", "additionalProperties"})
_SCHEMAS_BY_NAME: Final = frozenset({"properties"})
_SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


class ResultSchemaError(Exception):
    """A result violates the schema of its tool, or the schema is invalid."""


class ResultCheckTimeoutError(Exception):
    """Checking a result took too long."""


class ResultSchema:
    """The output schema of a tool."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._steps = _count_steps(schema)
        self._validator: Any = None
        # One server's results are checked one after the other, in one process at a time.
        self._lock = asyncio.Lock()

    async def check(self, value: object) -> None:
        """Check a structured result.

        Raises:
            ResultSchemaError: it violates the schema, or the schema is invalid.
            ResultCheckTimeoutError: the check took too long, or too much memory.
        """
        if self._is_quick(value):
            self._validator = self._validator or _make_validator(self.schema)
            violation = _find_violation(self._validator, value)
        else:
            async with self._lock:
                violation = await _check_in_process(self.schema, value)
        if violation is not None:
            raise ResultSchemaError(violation)

    def _is_quick(self, value: object) -> bool:
        nodes, chars = _measure(value)
        return self._steps * nodes <= _STEP_LIMIT and self._steps * chars <= _CHAR_LIMIT


def _count_steps(schema: Mapping[str, Any]) -> float:
    """Return the schemas that a value may be checked against; infinite if that is not certain."""
    try:
        if len(json.dumps(schema)) > _SCHEMA_LIMIT_CHARS:
            return math.inf
        return _StepCounter(schema).count(schema)
    except (AttributeError, RecursionError, TypeError, ValueError):
        return math.inf


class _StepCounter:
    """Adds up a schema with its references followed. Each definition is counted once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._by_reference: dict[str, float] = {}

    def count(self, schema: object) -> float:
        if isinstance(schema, bool):
            return 1
        if not isinstance(schema, Mapping):
            return math.inf
        steps = 1.0
        for keyword, value in schema.items():
            if keyword == "$ref":
                steps += self._count_reference(value)
            elif keyword in _SIMPLE or keyword.startswith("x-"):
                steps += self._count_words(keyword, value)
            else:
                steps += self._count_schemas(keyword, value)
        return steps

    def _count_schemas(self, keyword: str, value: object) -> float:
        if keyword in _SCHEMA:
            return self.count(value)
        if keyword in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            return sum(map(self.count, value.values()))
        if keyword in _SCHEMA_LISTS and isinstance(value, list):
            return sum(map(self.count, value))
        return math.inf

    @staticmethod
    def _count_words(keyword: str, value: object) -> float:
        # The oldest drafts allow schemas in `type`.
        if keyword == "type" and not isinstance(value, str):
            is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
            return 1 if is_list else math.inf
        return len(value) if isinstance(value, list) else 0

    def _count_reference(self, reference: object) -> float:
        if not isinstance(reference, str):
            return math.inf
        if reference not in self._by_reference:
            # A reference that is met again meanwhile is a circle.
            self._by_reference[reference] = math.inf
            found = _REFERENCE.fullmatch(reference)
            target = self._root.get(found[1], {}).get(found[2]) if found else None
            self._by_reference[reference] = self.count(target)
        return self._by_reference[reference]


def _measure(value: object) -> tuple[float, int]:
    """Return the number of values inside a value, and the length of its texts."""
    nodes: float = 0
    chars = 0
    level = [value]
    for _ in range(_DEPTH_LIMIT):
        below: list[object] = []
        for item in level:
            nodes += 1
            chars += len(item) if isinstance(item, str) else 8
            if isinstance(item, Mapping):
                chars += sum(map(len, item))
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return nodes, chars
        level = below
    return math.inf, chars


def _make_validator(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the validator of a schema, which follows no reference out of the schema.

    Raises:
        ResultSchemaError: the schema is invalid.
    """
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ResultSchemaError("the schema is invalid") from error
    return kind(schema, registry=Registry())


def _find_violation(validator: Any, value: object) -> str | None:  # noqa: ANN401
    """Return the keyword that a value violates, or None."""
    from referencing.exceptions import Unresolvable

    try:
        error = next(validator.iter_errors(value), None)
    except (Unresolvable, RecursionError):
        return "$ref"
    return None if error is None else str(error.validator)


async def _check_in_process(schema: Mapping[str, Any], value: object) -> str | None:
    request = json.dumps({"schema": schema, "value": value}).encode()
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            reply, _ = await process.communicate(request)
    except TimeoutError as error:
        raise ResultCheckTimeoutError(f"it takes more than {TIME_LIMIT_S:g} s") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if not reply.endswith(b"\n"):
        raise ResultCheckTimeoutError("it takes too much memory or time")
    violation: str | None = json.loads(reply)["violation"]
    return violation


def run_check() -> None:
    """Check the value on stdin, and print the violation."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT_BYTES, _MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_LIMIT_S, _CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.loads(sys.stdin.buffer.read())
    try:
        violation = _find_violation(_make_validator(request["schema"]), request["value"])
    except ResultSchemaError as error:
        violation = str(error)
    sys.stdout.write(json.dumps({"violation": violation}) + "\n")


if __name__ == "__main__":
    run_check()
