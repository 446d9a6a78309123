"""The commands that call a mesh as an A2A client: ask, chat, demo, and the standard's own."""

from typing import Annotated

import typer

from trunkline.cli.exits import finish, run
from trunkline.cli.options import (
    AgentOption,
    ApiKeyOption,
    FilesOption,
    JsonOption,
    SaveOption,
    UrlOption,
    resolve_api_key,
)

ContextOption = Annotated[
    str, typer.Option(metavar="ID", help="Continue in this context.", show_default=False)
]
PlainOption = Annotated[
    bool, typer.Option("--plain", help="Do not render the answer's Markdown on a terminal.")
]


def ask(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="What to ask.", show_default=False)
    ],
    *,
    agent: AgentOption = None,
    url: UrlOption = None,
    key: ApiKeyOption = None,
    task: Annotated[
        str, typer.Option(metavar="ID", help="Answer what this task asks.", show_default=False)
    ] = "",
    context: ContextOption = "",
    timeout: Annotated[
        float | None, typer.Option(metavar="S", min=0.001, help="End the task after S seconds.")
    ] = None,
    file: FilesOption = None,
    save: SaveOption = None,
    plain: PlainOption = False,
    json: JsonOption = False,
) -> None:
    """Ask the mesh and stream the answer. Exits 0 only if the task completed."""
    from trunkline.cli import ask as command

    request = command.Question(
        text=question,
        agent=agent,
        task_id=task,
        context_id=context,
        timeout_s=timeout,
        files=tuple(file or ()),
        save=save,
        api_key=resolve_api_key(key),
        is_plain=plain,
    )
    run(command.ask(request, url=url, as_json=json))


def chat(
    agent: AgentOption = None,
    url: UrlOption = None,
    *,
    key: ApiKeyOption = None,
    context: ContextOption = "",
    plain: PlainOption = False,
    json: JsonOption = False,
) -> None:
    """Talk with the mesh, line by line. Ctrl-C cancels a turn, Ctrl-D leaves, /help lists more."""
    from trunkline.cli import ask as command

    finish(
        lambda: command.chat(
            agent,
            url=url,
            api_key=resolve_api_key(key),
            context_id=context,
            as_json=json,
            is_plain=plain,
        )
    )


def demo(*, json: JsonOption = False) -> None:
    """Ask questions on a temporary mesh, and show the trace of one answer."""
    from trunkline.cli import demo as command

    run(command.demo(as_json=json))


def a2a() -> None:
    """Call any A2A agent: the standard's command line. See `trunkline a2a --help`."""
    from trunkline.cli.a2a_cli.program import main

    raise typer.Exit(main([]))
