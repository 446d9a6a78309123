"""Tests of `@agent`: the agent that it builds from a function, and its errors."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import (
    OpenHost,
    define,
    finish,
    start,
    status_texts,
    texts,
)
from trunkline import Part
from trunkline.agents import agent
from trunkline.errors import ConfigurationError, InvalidAgentResponseError
from trunkline.processes.run import load_agent
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State, TaskState


async def hello(task: TaskContext) -> str:
    return "hello"


@pytest.mark.parametrize(
    "name", ["", "two words", "über", "a/b", "a:b", ".", "..", "...", ".a", "a.", "-a", "x" * 64]
)
def test_a_name_must_fit_addresses_and_files(name: str) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        agent(name=name, description="Greets.")


@pytest.mark.parametrize(
    "name", ["Hello", "student_teacher_review", "a.b-c_d", "_x", "v1..2", "9", "x" * 63]
)
def test_a_name_has_letters_digits_and_some_signs(name: str) -> None:
    assert agent(name=name, description="Greets.")(hello).card.name == name


def test_the_name_and_the_description_default_to_those_of_the_function() -> None:
    @agent
    async def say_hello(task: TaskContext) -> str:
        """Greet people
        by name.

        More about it.
        """
        return "hello"

    assert (say_hello.card.name, say_hello.card.description) == (
        "say-hello",
        "Greet people by name.",
    )
    assert say_hello.card.skills[0].id == "say-hello"
    assert agent(name="other", tags=["greet"])(say_hello.function).card.name == "other"


def test_an_agent_without_a_description_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="docstring"):
        agent(hello)


def test_a_default_name_must_fit_a_url_too() -> None:
    async def größe(task: TaskContext) -> None:
        """Greet."""

    with pytest.raises(ConfigurationError, match="letters, digits"):
        agent(größe)
    # Messages to these names go to many.
    for name in ("all", "broadcast", "All"):
        with pytest.raises(ConfigurationError, match="go to all agents, or to a room"):
            agent(name=name, description="Is no agent.")


def test_an_unknown_declaration_is_refused() -> None:
    declare: Any = agent
    with pytest.raises(TypeError, match=r"agent\(\) got an unexpected keyword argument 'tag'"):
        declare(description="Says hello.", tag="hello")


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_concurrency_below_one_is_refused(concurrency: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1, or None"):
        agent(name="hello", description="Greets.", concurrency=concurrency)


@pytest.mark.parametrize("value", [{"a"}, 3, ["a"], b"raw"])
async def test_an_invalid_result_fails_with_the_allowed_types(
    open_host: OpenHost, value: object
) -> None:
    async def wrong(task: TaskContext) -> object:
        return value

    snapshot = await finish(await open_host(define(wrong)))
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    error_text = status_texts(snapshot)
    assert f"returned a value of type {type(value).__name__}" in error_text
    assert "a text (str), a JSON object (dict), a Part, a Message or None" in error_text


async def test_a_returned_text_that_was_streamed_is_not_written_again(open_host: OpenHost) -> None:
    async def streams(task: TaskContext) -> str:
        answer = task.artifact("answer")
        for piece in ("one ", "text"):
            await answer.append(piece)
        await answer.close()
        return "one text"

    snapshot = await finish(await open_host(define(streams)))
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(snapshot) == ["one text"]


async def test_a_returned_text_that_no_answer_has_is_written(open_host: OpenHost) -> None:
    async def adds(task: TaskContext) -> str:
        await task.artifact("answer").append("one ", last=True)
        await task.artifact("notes", is_answer=False).append("text", last=True)
        return "text"

    assert texts(await finish(await open_host(define(adds)))) == ["one ", "text", "text"]


async def test_an_invalid_piece_fails_with_the_allowed_types(
    open_host: OpenHost,
) -> None:
    async def wrong(task: TaskContext) -> AsyncIterator[object]:
        yield "text"
        yield 3

    snapshot = await finish(await open_host(define(wrong)))
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    assert "int, not a text (str), a JSON object (dict) or a Part" in status_texts(snapshot)
    assert texts(snapshot) == ["text"]


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (
            lambda task, value: task.complete(value),
            "it entered completed with a value of type {}, not {}, {}, a Part, a Message or None",
        ),
        (
            lambda task, value: task.require_input(value),
            "it entered input-required with a value of type {}, not {}, {}, a Part, "
            "a Message or None",
        ),
        (
            lambda task, value: task.working(value),
            "it entered working with a value of type {}, not {}, {}, a Part, a Message or None",
        ),
        (
            lambda task, value: task.progress(value),
            "it reported a value of type {}, not {}",
        ),
        (
            lambda task, value: task.reply(value),
            "it replied with a value of type {}, not {}, {}, a Part or a Message",
        ),
        (
            lambda task, value: task.artifact("a").append(value),
            "it appended a value of type {}, not {}, {} or a Part",
        ),
        (
            lambda task, value: task.plan().append(value),
            "it appended a value of type {}, not {}",
        ),
    ],
    ids=["complete", "require_input", "working", "progress", "reply", "append", "plan"],
)
async def test_writing_a_value_that_is_no_answer_fails_with_the_allowed_types(
    open_host: OpenHost,
    write: Callable[[TaskContext, object], Awaitable[None]],
    problem: str,
) -> None:
    value = ["a"]

    async def wrong(task: TaskContext) -> None:
        with pytest.raises(InvalidAgentResponseError) as caught:
            await write(task, value)
        await task.fail(caught.value.problem)

    snapshot = await finish(await open_host(define(wrong, direct_replies=True)))
    names = (type(value).__name__, "a text (str)", "a JSON object (dict)")
    assert status_texts(snapshot) == problem.format(*names)
    assert texts(snapshot) == []


async def test_the_state_is_an_enum_and_authors_see_no_methods_of_the_host(
    open_host: OpenHost,
) -> None:
    async def inspect(task: TaskContext) -> str:
        states = [task.state]
        await task.working()
        states.append(task.state)
        assert states == [TaskState.SUBMITTED, TaskState.WORKING]
        names = {*dir(TaskContext), *vars(task)}
        return " ".join(sorted(name for name in names if not name.startswith("_")))

    snapshot = await finish(await open_host(define(inspect)))
    assert texts(snapshot) == [
        "accepted_output_modes account agent approvals artifact ask ask_model attempt call_tool "
        "caller complete context_id deadline fail history id incoming is_over mark_partial message "
        "open plan progress publish questions read reject reply report_usage request "
        "request_approval require_auth require_input rewind send settings state store "
        "stream text tool turn working"
    ]


def test_a_generator_must_be_asynchronous() -> None:
    def pieces(task: TaskContext) -> Iterator[str]:
        yield "hello"

    with pytest.raises(ConfigurationError, match="yields, so it must be `async def`"):
        agent(name="hello", description="Greets.")(pieces)  # type: ignore[arg-type]


_WORD: ContextVar[str] = ContextVar("_WORD", default="")


@pytest.mark.parametrize("value", ["text", {"n": 1}, Part(text="text"), None])
async def test_a_plain_function_runs_in_a_thread(open_host: OpenHost, value: Any) -> None:
    threads = set()

    def plain(task: TaskContext) -> Any:
        threads.add(threading.current_thread())
        _WORD.set(task.text)
        return value

    snapshot = await finish(await open_host(define(plain)))
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED, status_texts(snapshot)
    assert len(snapshot.task.artifacts) == (value is not None)
    assert threads.isdisjoint({threading.main_thread()})
    assert _WORD.get() == ""


async def test_a_plain_function_that_calls_an_agent_fails_with_the_remedy(
    open_host: OpenHost,
) -> None:
    def calls(task: TaskContext) -> None:
        _unused = task.ask("echo", "hello")

    snapshot = await finish(await open_host(define(calls)))
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    assert "make it `async def`" in status_texts(snapshot)


async def test_a_cancel_ends_the_task_of_a_plain_function_that_blocks(open_host: OpenHost) -> None:
    loop, begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def blocks(task: TaskContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()

    host = await open_host(define(blocks))
    task_id = await start(host)
    try:
        await begun.wait()
        await host.cancel(task_id, account="")
        snapshot = await host.wait_turn(task_id)
        assert snapshot.task.status.state == State.TASK_STATE_CANCELED
    finally:
        may_end.set()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("nothing", "MODULE:NAME"),
        ("no_such_module:hello", "can't import"),
        ("trunkline_agents.echo.agent:missing", "has no missing"),
        ("trunkline.errors:Code", "not an agent"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_one_clear_error(spec: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load_agent(spec)


def test_the_folder_of_an_agent_replaces_no_other_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colorsys.py").write_text("raise SystemExit('the folder replaced a module')")
    (tmp_path / "greeter_neighbour.py").write_text("WORD = 'Hi'")
    (tmp_path / "greeter_of_a_folder.py").write_text(
        "import colorsys\nfrom greeter_neighbour import WORD\n"
        "from trunkline import agent\n"
        "@agent(description=WORD)\nasync def hello(task): return WORD\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert load_agent("greeter_of_a_folder:hello").card.description == "Hi"
    with pytest.raises(ConfigurationError, match=r"module random \(.*random.py\) has no hello"):
        load_agent("random:hello")


def test_an_installed_agent_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, folder = tmp_path / "installed", tmp_path / "folder"
    (installed / "greeter_package").mkdir(parents=True)
    folder.mkdir()
    (installed / "greeter_package" / "__init__.py").write_text(
        "try:\n    from greeter_extra import WORD\nexcept ImportError:\n    WORD = 'none'\n"
        "from trunkline import agent\n"
        "@agent(description=WORD)\nasync def hello(task): return WORD\n"
    )
    (folder / "greeter_extra.py").write_text("WORD = 'of the folder'")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(installed), *filter(None, sys.path)])
    assert load_agent("greeter_package:hello").card.description == "none"
    # A module that only the folder has is no part of the installed package.
    with pytest.raises(ConfigurationError, match=r"greeter_package\.other"):
        load_agent("greeter_package.other:hello")
