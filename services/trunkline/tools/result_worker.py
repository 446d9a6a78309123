"""The process that checks results of tools against the schemas that their servers declare.

Both come from the server, and together they may take any time: `pattern` backtracks, references
multiply, and a schema may be slow even to load. So `ResultChecker` runs this file as a script and
kills it at a deadline. It imports nothing of ours, which would load the whole mesh.

It prints `null` when it is ready. A request is two lines of JSON, the schema and the value. The
reply is one line: the violation, or `null`.
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

from jsonschema.validators import validator_for  # noqa: E402
from referencing import Registry  # noqa: E402

_CPU_LIMIT_S: Final = 10
_MEMORY_LIMIT_BYTES: Final = 512 << 20
# Enough for the tools in use; more are loaded again.
_SCHEMAS: Final = 16


def find_violation(schema: bytes, value: object) -> str | None:
    """Return the keyword of the schema that a value violates, or None.

    An invalid schema is violated by any value.
    """
    try:
        violation = next(_load_validator(schema).iter_errors(value), None)
    except MemoryError:
        raise
    # jsonschema raises errors of many types for a schema or a pattern that is invalid.
    except Exception as error:  # noqa: BLE001
        return f"the schema is invalid ({type(error).__name__})"
    return None if violation is None else str(violation.validator)


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


def _reply(violation: str | None) -> None:
    sys.stdout.write(json.dumps(violation) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer requests until stdin ends."""
    _set_limit(resource.RLIMIT_AS, _MEMORY_LIMIT_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)
    _reply(None)
    while schema := sys.stdin.buffer.readline():
        value = sys.stdin.buffer.readline()
        _limit_cpu_time()
        violation = find_violation(schema, json.loads(value))
        # The patterns of one server must not take the memory of the next.
        re.purge()
        _reply(violation)


if __name__ == "__main__":
    main()
