"""Runs tests that are coroutines, under any test runner."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def async_test(
    test: Callable[_Given, Coroutine[Any, Any, _Returned]],
) -> Callable[_Given, _Returned]:
    """Make a plain test of an asynchronous one: pytest, fixtures included, needs no plugin then."""

    @functools.wraps(test)
    def run(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        return asyncio.run(test(*args, **kwargs))

    return run
