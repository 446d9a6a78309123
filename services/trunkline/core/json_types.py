"""The type of values of JSON."""

from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""A value as `json.loads` returns it. Code that takes or returns one works with any JSON value."""
