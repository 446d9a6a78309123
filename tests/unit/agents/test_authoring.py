"""What `@agent` makes of a function, and what it refuses."""

import pytest

from trunkline.agents import agent
from trunkline.agents.process import load_agent
from trunkline.errors import ConfigurationError
from trunkline.tasks.context import TaskContext


async def hello(task: TaskContext) -> str:
    return "hello"


def test_tags_and_examples_become_the_card_s_one_skill() -> None:
    made = agent(name="hello", description="Greets.", tags=["greet"], examples=["greet Ada"])(hello)
    (skill,) = made.card.skills
    assert (list(skill.tags), list(skill.examples)) == (["greet"], ["greet Ada"])
    assert list(made.card.default_input_modes) == ["text/plain"]
    assert not made.card.supported_interfaces


@pytest.mark.parametrize("name", ["", "Hello", "two words", "über", "a/b"])
def test_a_name_must_fit_a_url(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case"):
        agent(name=name, description="Greets.")


def test_a_function_must_be_asynchronous() -> None:
    with pytest.raises(ConfigurationError, match="async def"):
        agent(name="hello", description="Greets.")(lambda task: "hello")  # type: ignore[arg-type]


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


def test_an_agent_is_found_by_module_and_name() -> None:
    assert load_agent("trunkline_agents.echo.agent:echo").card.name == "echo"
