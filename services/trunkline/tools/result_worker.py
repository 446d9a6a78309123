"""The process that checks results of tools against the schemas that their servers declare.

Schema and result come from the server, and a check may take any time: `pattern` backtracks,
references multiply, and a schema may be slow to load. So `ResultChecker` runs this file as a script
and kills it at a deadline. The script imports no module of ours, because that would load the whole
mesh.

It prints `null` when it is ready. A request is two lines of JSON, the schema and the value. The
reply is one line of JSON: `null`, `{"violation": TEXT}`, or `{"problem": TEXT}` if the schema is
unusable.
"""

import json
import re
import resource
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

# jsonschema loads this optional parser of URIs if it is installed, which takes a second. Formats
# are not checked here.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

from jsonschema import ValidationError  # noqa: E402
from jsonschema.validators import validator_for  # noqa: E402
from referencing import Registry  # noqa: E402

_CPU_LIMIT_S: Final = 10
_MEMORY_LIMIT_BYTES: Final = 512 << 20
# Characters of a rule and of the path of a member in a violation.
_RULE_CHARS: Final = 200
_PATH_CHARS: Final = 200
# Enough for the tools in use; more are loaded again.
_SCHEMAS: Final = 16


class UnusableSchemaError(Exception):
    """Values can't be checked against a schema, for example because a reference leads nowhere."""


def find_violation(schema: bytes, value: object) -> str | None:
    """Return the violation of a schema by a value, or None if the value fits.

    The text names the member and quotes the schema, and never quotes a value.

    Raises:
        UnusableSchemaError: the schema is invalid.
    """
    try:
        violation = next(_load_validator(schema).iter_errors(value), None)
    except MemoryError:
        raise
    # jsonschema raises errors of many types for a schema or a pattern that is invalid.
    except Exception as error:
        raise UnusableSchemaError(
            f"its outputSchema is invalid ({type(error).__name__})"
        ) from error
    return None if violation is None else _describe(violation)


def _describe(violation: ValidationError) -> str:
    path, keyword, limit = (
        list(violation.absolute_path),
        violation.validator,
        violation.validator_value,
    )
    if keyword == "required":
        # One error for each missing member, in their order.
        path += [name for name in limit if name not in violation.instance][:1]
        reason = "is missing"
    elif keyword == "type":
        reason = f"is not of type {limit if isinstance(limit, str) else ' or '.join(limit)}"
    elif keyword == "additionalProperties" and limit is False:
        named, patterns = (
            violation.schema.get(key, {}) for key in ("properties", "patternProperties")
        )
        path += [
            name
            for name in violation.instance
            if name not in named and not any(re.search(pattern, name) for pattern in patterns)
        ][:1]
        reason = "is not allowed"
    else:
        rule = json.dumps({str(keyword): limit}, ensure_ascii=False)
        reason = f"violates {_shorten(rule, _RULE_CHARS)}"
    member = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"{_shorten(member.removeprefix('.'), _PATH_CHARS) or 'the result'}: {reason}"


def _shorten(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}…"


@lru_cache(_SCHEMAS)
def _load_validator(schema: bytes) -> Any:  # noqa: ANN401
    """Return the validator of a schema, which follows no reference out of the schema."""
    loaded = json.loads(schema)
    kind = validator_for(loaded)
    kind.check_schema(loaded)
    return kind(loaded, registry=Registry())


def _set_limit(kind: int, limit: int) -> None:
    # Some platforms refuse some limits. The parent's deadline holds there.
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard < 0 else min(limit, hard), hard))


def _limit_cpu_time() -> None:
    """Allow _CPU_LIMIT_S of processor time from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set_limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + _CPU_LIMIT_S)


def _check(schema: bytes, value: object) -> dict[str, str] | None:
    try:
        violation = find_violation(schema, value)
    except UnusableSchemaError as error:
        return {"problem": str(error)}
    return None if violation is None else {"violation": violation}


def _reply(reply: dict[str, str] | None) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer requests until stdin ends."""
    _set_limit(resource.RLIMIT_AS, _MEMORY_LIMIT_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)
    _reply(None)
    while schema := sys.stdin.buffer.readline():
        value = sys.stdin.buffer.readline()
        _limit_cpu_time()
        reply = _check(schema, json.loads(value))
        # The patterns of one server must not take the memory of the next server.
        re.purge()
        _reply(reply)


if __name__ == "__main__":
    main()
