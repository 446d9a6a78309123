"""Declares commands: one function has the options of a command, its help and its work."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

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
    """Add a function to a group as a command. By default the function's name is the command's name.

    The parameters of the function are the arguments and options of the command, and its docstring
    is the help. A parameter whose type is a dataclass stands for the fields of that dataclass, so
    that several commands share options. The function returns the exit code, where None is success,
    and may be a coroutine function. An error that it raises is printed as one line. The function
    itself stays unchanged for other callers. A function that `serves` until a signal runs on the
    event loop of serving processes.
    """

    def declare(work: Work) -> Work:
        @functools.wraps(work)
        def run_command(**values: Any) -> None:  # noqa: ANN401
            arguments = group_values(work, values)
            if serves:
                from trunkline.core.runtime import run as run_service

                finish(lambda: run_service(work(**arguments)))
            elif inspect.iscoroutinefunction(work):
                run(work(**arguments))
            else:
                finish(lambda: work(**arguments))

        set_parameters(run_command, expand_parameters(inspect.signature(work).parameters.values()))
        group.command(name, **settings)(run_command)
        return work

    return declare


def expand_parameters(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command, with the fields of a dataclass in place of it."""
    for parameter in parameters:
        if not is_dataclass(parameter.annotation):
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        types = get_type_hints(parameter.annotation, include_extras=True)
        for field in fields(parameter.annotation):
            yield inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=types[field.name],
            )


def group_values(work: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a command's parameters as the function takes them."""
    arguments = dict(values)
    for parameter in inspect.signature(work).parameters.values():
        shared = parameter.annotation
        if isinstance(shared, type) and is_dataclass(shared):
            names = [field.name for field in fields(shared)]
            own = {name: arguments.pop(name) for name in names}
            arguments[parameter.name] = shared(**own)
    return arguments


def set_parameters(function: Any, parameters: Iterable[inspect.Parameter]) -> None:  # noqa: ANN401
    """Give a function the parameters that typer reads."""
    signature = inspect.Signature(list(parameters))
    function.__signature__ = signature
    function.__annotations__ = {
        name: parameter.annotation for name, parameter in signature.parameters.items()
    }
