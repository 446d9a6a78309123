"""The commands that call a mesh as an A2A client: ask, chat, demo, and the standard's own."""

import sys
from typing import Annotated

from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import (
    AgentOption,
    ApiKeyOption,
    FilesOption,
    JsonOption,
    SaveOption,
    TimeoutOption,
    UrlOption,
    argument,
    flag,
    option,
    resolve_api_key,
)
from trunkline.cli.terminal import print_json, print_progress
from trunkline.errors import InvalidArgumentError, TrunklineError

ContextOption = Annotated[str, option("ID", "Continue in this context.")]
# Two agents answer the last question in parallel, so its trace is the one to show.
_DEMO = (
    "what is 1+2",
    "solve x^2-5x+6=0",
    "100 USD to EUR on 2020-03-02",
    "what is 15% of 240, and convert 36 USD to EUR",
)

PlainOption = Annotated[bool, flag("Do not render the answer's Markdown on a terminal.", "--plain")]


def check_question(text: str) -> None:
    """Check that there is something to ask. InvalidArgumentError: there is not."""
    if not text.strip():
        raise InvalidArgumentError("QUESTION", "is empty; ask something")


async def ask(
    question: Annotated[str, argument("QUESTION", "What to ask.")],
    *,
    agent: AgentOption = None,
    url: UrlOption = None,
    key: ApiKeyOption = None,
    task: Annotated[str, option("ID", "Answer what this task asks.")] = "",
    context: ContextOption = "",
    timeout: TimeoutOption = None,
    file: FilesOption = None,
    save: SaveOption = None,
    plain: PlainOption = False,
    json: JsonOption = False,
) -> ExitCode:
    """Ask the mesh and stream the answer. Exits 0 only if the task completed."""
    import asyncio

    from trunkline.cli.attachments import read_parts
    from trunkline.cli.ephemeral_mesh import open_mesh

    check_question(question)
    files = await asyncio.to_thread(read_parts, file or ())
    # An ephemeral mesh has no earlier task or context to continue.
    async with open_mesh(url, may_start=not (task or context)) as mesh:
        # The client takes a while to load, and an ephemeral mesh starts meanwhile.
        from trunkline.cli.ask import ask_agent

        return await ask_agent(
            mesh,
            question,
            agent=agent,
            url=url,
            task_id=task,
            context_id=context,
            timeout_s=timeout,
            files=files,
            save=save,
            api_key=resolve_api_key(key),
            is_plain=plain,
            as_json=json,
        )


def chat(
    agent: AgentOption = None,
    url: UrlOption = None,
    *,
    key: ApiKeyOption = None,
    context: ContextOption = "",
    plain: PlainOption = False,
    json: JsonOption = False,
) -> ExitCode:
    """Talk with the mesh, line by line. Ctrl-C cancels a turn, Ctrl-D leaves, /help lists more."""
    import asyncio

    from trunkline.cli.chat import Conversation, read_line, run_line

    # One event loop serves the whole conversation and runs only during turns. While input() waits
    # for a line, the terminal handles Ctrl-C and line editing as usual.
    with asyncio.Runner() as runner:
        conversation = Conversation(
            agent,
            as_json=json,
            api_key=resolve_api_key(key),
            context_id=context,
            is_plain=plain,
        )
        code = ExitCode.OK
        try:
            runner.run(conversation.open(url))
            if sys.stdin.isatty():
                print_progress("/help lists the commands, Ctrl-D leaves")
            while (line := read_line()) is not None and line.strip() != "/quit":
                if line.strip():
                    run_line(runner, conversation, line)
        except TrunklineError as error:
            code = print_error(error)
        except KeyboardInterrupt:
            code = ExitCode.CANCELED
        finally:
            runner.run(conversation.close())
    return code


async def demo(*, json: JsonOption = False) -> ExitCode:
    """Ask questions on a temporary mesh, and show the trace of one answer."""
    from trunkline.cli.ephemeral_mesh import start_ephemeral_mesh

    if not json:
        print("starting a temporary mesh", flush=True)
    async with start_ephemeral_mesh() as mesh:
        from trunkline.cli.ask import ask_and_show, open_client
        from trunkline.cli.directory import open_directory
        from trunkline.cli.trace import fetch_trace, render_trace
        from trunkline.mesh.client.trace_tree import TraceTree

        async with open_client(mesh, None, "") as client:
            turns = [await ask_and_show(client, question, as_json=json) for question in _DEMO]
        async with open_directory(mesh.mesh) as directory:
            spans = await fetch_trace(directory.trace_stub(), turns[-1][0].trace_id)
    tree = TraceTree.build(spans)
    if json:
        print_json([report.to_json() for report, _ in turns])
    else:
        print("\n".join(["", *render_trace(tree)]), flush=True)
    is_ok = tree.is_complete and all(code is ExitCode.OK for _, code in turns)
    return ExitCode.OK if is_ok else ExitCode.FAILED


def a2a() -> int:
    """Call any A2A agent: the standard's command line. See `trunkline a2a --help`."""
    from trunkline.cli.a2a_cli.program import main

    return main([])
