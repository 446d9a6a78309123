"""Replies of models count in budgets, and an exhausted budget prevents the next call."""

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from harness.remote.model_server import ModelServer, model_server, say
from trunkline.agents.langgraph.callbacks import build_model_callbacks
from trunkline.agents.reasoning.models import Model, ModelChoice, open_model
from trunkline.agents.reasoning.models import model as model_module
from trunkline.agents.reasoning.models.providers import find_provider
from trunkline.core.settings import Budget, LimitSettings, ModelSettings, TreeSettings
from trunkline.errors import LimitExceededError, ModelUnavailableError
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.task_tree import TaskTree
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.usage_store import SqliteUsageStore, Subject, Usage, list_usage
from trunkline.testing import Call, ScriptedModel
from trunkline.v1 import snapshot_pb2

# Clients reuse their connections, and a connection belongs to one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

NOON = datetime(2026, 2, 10, 12, tzinfo=UTC)
QUESTION = [SystemMessage("Be brief."), HumanMessage("hello, what is it?")]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.setattr(model_module, "FIRST_PAUSE_S", 0.01)
        yield running


class Ledger:
    """The budgets of a data directory, and what is recorded there."""

    def __init__(
        self,
        folder: Path,
        limits: LimitSettings,
        models: Mapping[str, ModelSettings] | None = None,
    ) -> None:
        self._folder = folder
        self._budgets = Budgets(SqliteUsageStore(folder), limits, clock=lambda: NOON)
        task = snapshot_pb2.TaskSnapshot(agent="tested")
        self.tree = TaskTree(task, task, TreeSettings())
        self.meter = UsageMeter(self.tree, "acme", "ann", self._budgets, models or {})

    def close(self) -> dict[Subject, Usage]:
        """Return the usage of the day by subject."""
        self._budgets.close()
        rows = list_usage(self._folder, NOON)
        return {subject: usage for period, subject, usage in rows if len(period) == 10}


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "ollama"])
async def test_the_tokens_that_a_provider_reports_are_recorded(
    server: ModelServer, tmp_path: Path, provider: str
) -> None:
    name = f"{provider}:some-model"
    options = ModelSettings(input_price=2, output_price=4)
    tables = {"google": ModelSettings(base_url=server.url), name: options}
    ledger = Ledger(tmp_path, LimitSettings(day_tokens=100), tables)
    server.script(say("It is three."))
    reply = await open_model(ModelChoice(name, (), tables)).ask(QUESTION, meter=ledger.meter)
    reported = reply.usage_metadata
    assert reported is not None
    read, written = reported["input_tokens"], reported["output_tokens"]
    expected = Usage(read, written, (read * 2 + written * 4) * 1000)
    counted = ledger.tree.usage
    assert (counted.tokens, counted.cost_micros) == (read + written, read * 2 + written * 4)
    assert ledger.close() == {
        Subject("acme"): expected,
        Subject("acme", "ann"): expected,
        Subject(model=name): expected,
    }


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "ollama"])
async def test_the_client_of_a_graph_has_the_name_in_our_settings(
    server: ModelServer, tmp_path: Path, provider: str
) -> None:
    ledger = Ledger(tmp_path, LimitSettings(day_tokens=100))
    server.script(say("It is three."))
    name = f"{provider}:some-model"
    client, short = find_provider(name)
    choice = ModelChoice(name, (), {"google": ModelSettings(base_url=server.url)})
    chat = client.build_client(short, choice.resolve_options(name))
    reply = await chat.ainvoke(QUESTION, {"callbacks": build_model_callbacks(ledger.meter)})
    assert reply.usage_metadata is not None
    recorded = ledger.close()
    assert Subject(model=name) in recorded
    assert recorded[Subject("acme")].tokens == reply.usage_metadata["total_tokens"]


async def test_tokens_that_are_not_reported_are_estimated(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, LimitSettings(day_tokens=100))
    model = Model.from_chat_model(ScriptedModel("twelve chars"))
    await model.ask(QUESTION, meter=ledger.meter)
    assert ledger.tree.usage.tokens == 27 // 4 + 3
    assert ledger.close()[Subject("acme")] == Usage(27 // 4, 3, 0)


async def test_tool_calls_count_in_the_estimate(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, LimitSettings(day_tokens=100))
    model = Model.from_chat_model(ScriptedModel(Call("add", {"numbers": [1, 2]})))
    await model.ask(QUESTION, meter=ledger.meter)
    used = ledger.close()[Subject("acme")]
    assert used.output_tokens == math.ceil(len('{"numbers": [1, 2]}') / 4)


async def test_a_reply_that_breaks_off_counts(server: ModelServer, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, LimitSettings(day_tokens=10_000))
    cut = say("It is proba", is_cut=True)
    server.script(cut, cut, cut)
    with pytest.raises(ModelUnavailableError):
        await open_model("openai:some-model").ask(QUESTION, meter=ledger.meter)
    assert ledger.tree.usage.tokens == 3 * (27 // 4 + 3)
    assert ledger.close()[Subject("acme")] == Usage(3 * (27 // 4), 3 * 3, 0)


async def test_a_reply_that_nobody_waits_for_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, LimitSettings(day_tokens=10_000))
    model = Model.from_chat_model(ScriptedModel("four words are here"))

    async def stop(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await model.ask(QUESTION, on_text=stop, meter=ledger.meter)
    assert ledger.close()[Subject("acme")] == Usage(6, 2, 0)


async def test_an_exhausted_budget_prevents_the_call(server: ModelServer, tmp_path: Path) -> None:
    name = "openai:some-model"
    ledger = Ledger(tmp_path, LimitSettings(model={name: Budget(day_tokens=18)}))
    server.script(say("It is three."), say("not sent"))
    model = open_model(name)
    await model.ask(QUESTION, meter=ledger.meter)
    with pytest.raises(
        LimitExceededError, match=f"model '{name}' has used its budget of 18 tokens"
    ):
        await model.ask(QUESTION, meter=ledger.meter)
    assert len(server.requests) == 1
    # The built-in model costs nothing.
    await open_model("rules").ask(QUESTION, meter=ledger.meter)
    assert ledger.close().keys() == {Subject("acme"), Subject("acme", "ann"), Subject(model=name)}
