"""Settings of agents: from a table, from variables, and their errors."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from trunkline.agents import FunctionAgent, agent
from trunkline.core.settings import AgentSettings, Settings, load_settings
from trunkline.errors import ConfigurationError
from trunkline.processes.hosting import apply_options, load_agent_options
from trunkline.tasks.context import TaskContext


class Model(BaseModel):
    city: str
    count: int = 3
    tags: list[str] = []
    key: SecretStr = SecretStr("")


@dataclass
class Plain:
    city: str
    count: float = 1.0
    made: list[str] = field(default_factory=list, init=False)


def greeter(kind: type[Any] | None) -> FunctionAgent:
    @agent(name="greet-er", description="Greets.", settings=kind)
    async def greet(task: TaskContext[Any]) -> str:
        return str(task.settings)

    return greet


@pytest.mark.parametrize("kind", [Model, Plain])
def test_variables_override_the_table_and_values_are_converted(kind: type[Any]) -> None:
    variables = {"TRUNKLINE_AGENT_GREET_ER_COUNT": "5", "TRUNKLINE_AGENT_GREET_ER": "else"}
    options: Any = load_agent_options("greet-er", kind, {"city": "Oslo"}, environment=variables)
    assert (options.city, options.count) == ("Oslo", 5)
    assert isinstance(options, kind)


def test_a_variable_holds_a_list_as_json() -> None:
    variables = {"TRUNKLINE_AGENT_A_TAGS": '["x", "y"]', "TRUNKLINE_AGENT_A_CITY": "[Oslo"}
    options: Any = load_agent_options("a", Model, {}, environment=variables)
    assert (options.tags, options.city) == (["x", "y"], "[Oslo")


@pytest.mark.parametrize(
    ("table", "variables", "where", "problem"),
    [
        ({}, {}, "[agent.a.options] city", "is missing; write it there, or set TRUNKLINE_AGENT_A_"),
        ({"city": "x", "count": "q"}, {}, "[agent.a.options] count", "valid"),
        ({"city": "x"}, {"TRUNKLINE_AGENT_A_COUNT": "q"}, "TRUNKLINE_AGENT_A_COUNT", "valid"),
        ({"city": "x", "town": 1}, {}, "[agent.a.options] town", "no such setting; there are: c"),
    ],
)
@pytest.mark.parametrize("kind", [Model, Plain])
def test_an_invalid_value_is_reported_by_its_key_or_variable(
    kind: type[Any], table: dict[str, object], variables: dict[str, str], where: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_agent_options("a", kind, table, environment=variables)
    assert caught.value.where == where
    assert problem in caught.value.problem


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_agent_options("a", Model, {"city": "x", "key": ["hunter2"]}, environment={})
    assert caught.value.where == "[agent.a.options] key"
    assert "hunter2" not in str(caught.value)


def test_the_table_of_the_file_reaches_the_agent_that_is_declared_with_settings(
    tmp_path: Path,
) -> None:
    (tmp_path / "trunkline.toml").write_text('[agent.greet-er.options]\ncity = "Oslo"\n')
    settings = load_settings(environment={}, folder=tmp_path)
    options = apply_options(greeter(Model), settings)
    assert isinstance(options, FunctionAgent)
    assert options.settings == Model(city="Oslo")


def test_settings_passed_in_code_are_used_unchanged() -> None:
    own = greeter(Plain).with_settings(Plain("Bergen"))
    assert apply_options(own, Settings()) is own
    with pytest.raises(ConfigurationError, match="its settings are Plain, not Model"):
        greeter(Plain).with_settings(Model(city="Oslo"))


def test_an_agent_without_settings_refuses_options() -> None:
    table = Settings(agent_options={"greet-er": AgentSettings(options={"city": "Oslo"})})
    with pytest.raises(ConfigurationError, match="it takes no settings"):
        apply_options(greeter(None), table)
    plain = greeter(None)
    assert apply_options(plain, Settings()) is plain


def test_settings_are_a_model_or_a_dataclass() -> None:
    with pytest.raises(ConfigurationError, match="a pydantic model or a dataclass"):
        greeter(dict)
