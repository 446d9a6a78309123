"""Declares commands: one function has the options of a command, its help and its work."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from trunkline.cli.exits import finish, run

Work = TypeVar("Work", bound=Callable[..., Any])


def command(
    group: typer.Typer,
    name: str | None = None,
    *,
    serves: bool = False,
    **settings: Any,  # noqa: ANN401  typer's settings
) -> Callable[[Work], Work]:
    """Add a function to a group, as the command of a name, else of the function's own name.

    Its parameters are the arguments and options of the command, and its docstring is the help. It
    returns the exit code, where None is success, and may be a coroutine function. An error that it
    raises is printed as one line. The function itself stays unchanged for other callers. One that
    `serves` until a signal runs on the event loop of serving processes.
    """

    def declare(work: Work) -> Work:
        @functools.wraps(work)
        def run_command(*args: Any, **options: Any) -> None:  # noqa: ANN401
            if serves:
                from trunkline.core.runtime import run as run_service

                finish(lambda: run_service(work(*args, **options)))
            elif inspect.iscoroutinefunction(work):
                run(work(*args, **options))
            else:
                finish(lambda: work(*args, **options))

        group.command(name, **settings)(run_command)
        return work

    return declare
