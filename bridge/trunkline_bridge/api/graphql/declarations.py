"""Declares GraphQL types and fields whose descriptions are docstrings."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import strawberry
from typing_extensions import dataclass_transform

_T = TypeVar("_T")


def describe(declared: object) -> str:
    """Return a docstring as the description of a type or a field."""
    return inspect.cleandoc(getattr(declared, "__doc__", None) or "")


@dataclass_transform(kw_only_default=True, field_specifiers=(strawberry.field,))
def object_type(name: str) -> Callable[[type[_T]], type[_T]]:
    """Return the decorator that makes a class a GraphQL type."""
    return lambda cls: strawberry.type(cls, name=name, description=describe(cls))


@dataclass_transform(kw_only_default=True, field_specifiers=(strawberry.field,))
def interface_type(name: str) -> Callable[[type[_T]], type[_T]]:
    """Return the decorator that makes a class a GraphQL interface."""
    return lambda cls: strawberry.interface(cls, name=name, description=describe(cls))


@dataclass_transform(kw_only_default=True, field_specifiers=(strawberry.field,))
def input_type(name: str) -> Callable[[type[_T]], type[_T]]:
    """Return the decorator that makes a class a GraphQL input."""
    return lambda cls: strawberry.input(cls, name=name, description=describe(cls))


def field(resolver: Callable[..., Any]) -> Any:  # noqa: ANN401  a field of any type
    """Make a method a field of a type, a query or a mutation."""
    return strawberry.field(resolver, description=describe(resolver))


def subscription(resolver: Callable[..., Any]) -> Any:  # noqa: ANN401  a field of any type
    """Make an async generator a subscription."""
    return strawberry.subscription(resolver, description=describe(resolver))
