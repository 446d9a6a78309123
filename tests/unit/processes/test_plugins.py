"""Installed packages bring agents, MCP servers, settings and commands by entry points."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trunkline_agents
from harness.mesh.command_line import run_in_process
from harness.mesh.identity import mesh_credentials
from trunkline import TaskContext, agent
from trunkline.agents.plugins import load_plugins
from trunkline.core.settings import Settings, load_settings
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.processes.agents import build_agents, map_brought_agents
from trunkline.processes.tools import load_mcp_config
from trunkline.testing import mesh
from trunkline.workflows.loading import load_workflow_agents
from trunkline.workflows.plugins import list_plugin_names, load_plugin_agents

BUNDLED = ["argocd", "currency", "echo", "math", "research"]
WEATHER = """
import typer
from pydantic import BaseModel
from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec, agent

class Weather(BaseModel):
    station: str = ""

def servers(context):
    if not context.settings.station:
        return {}
    args = [f"--station={context.settings.station}"]
    return {"weather": McpServer(command="my-weather", args=args, idle_s=5)}

plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="weather",
        description="Tells the weather.",
        skills=[AgentSkill(id="weather", name="Weather", tags=["weather"])],
        servers=["weather"],
    ),
    servers=servers,
    settings_type=Weather,
)

@agent(name="hail", description="Greets.", tags=["hail"])
async def hail(task):
    return f"Hail, {task.text}!"

commands = typer.Typer(help="Look at the weather.")

@commands.command("now")
def now() -> None:
    print("sunny")

@commands.command("later")
def later() -> None:
    print("rain")
"""


class Installer:
    """Installs packages into a folder on the module search path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, code: str, entry_points: str) -> None:
        (self.folder / f"{name}.py").write_text(code)
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return Installer(folder)


def ignored_plugins(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Return the reasons for ignored plugins by name; each is one line."""
    reasons = {}
    for record in caplog.records:
        assert record.message == "plugin.ignored"
        reasons[vars(record)["plugin"]] = vars(record)["problem"]
    assert not any("\n" in problem for problem in reasons.values())
    return reasons


def test_the_agents_that_ship_are_plugins() -> None:
    assert list(load_plugins()) == BUNDLED


async def test_an_agent_of_an_installed_package_is_on_the_mesh(installer: Installer) -> None:
    installer.install("aloha1", WEATHER, "[trunkline.agents]\nhail = aloha1:hail\n")
    async with mesh(bundled=["hail"]) as running:
        assert (await running.ask("Ada")).text == "Hail, Ada!"


def test_a_plugin_chooses_its_servers_by_its_settings(installer: Installer, tmp_path: Path) -> None:
    installer.install("aloha2", WEATHER, "[trunkline.agents]\nweather = aloha2:plugin\n")
    plugins = load_plugins()
    assert list(plugins) == sorted([*BUNDLED, "weather"])
    assert "weather" not in load_mcp_config(load_settings(folder=tmp_path), plugins).servers

    (tmp_path / "trunkline.toml").write_text('[weather]\nstation = "EDDB"\n')
    config = load_mcp_config(load_settings(folder=tmp_path), plugins)
    assert config.servers["weather"].args == ["--station=EDDB"]
    assert config.servers["weather"].trunkline.idle_s == 5
    assert config.plugin_servers["weather"] == "weather"

    (tmp_path / "trunkline.toml").write_text("[weather]\nplanet = 1\n")
    with pytest.raises(ConfigurationError, match=r"weather\.planet: no such setting"):
        load_mcp_config(load_settings(folder=tmp_path), plugins)


@pytest.mark.parametrize(
    ("code", "point", "problem"),
    [
        ("raise RuntimeError('two\\nlines')", "bad = {0}:plugin", "RuntimeError: two lines"),
        ("", "bad = no_such_module:plugin", "ModuleNotFoundError"),
        ("", "bad = {0}:plugin", "has no attribute 'plugin'"),
        ("plugin = 3", "bad = {0}:plugin", "is neither an AgentPlugin nor an agent"),
        (WEATHER, "bad = {0}:plugin", "its agent is named 'weather'"),
        (
            WEATHER.replace('"hail"', '"echo"'),
            "echo = {0}:hail",
            "another package has a plugin of this name",
        ),
        (WEATHER, "supervisor = {0}:hail", "the mesh has an agent of this name already"),
    ],
)
def test_a_broken_plugin_logs_one_line_and_the_others_load(
    installer: Installer,
    caplog: pytest.LogCaptureFixture,
    code: str,
    point: str,
    problem: str,
    request: pytest.FixtureRequest,
) -> None:
    module = f"aloha_{abs(hash(request.node.name))}"
    installer.install(module, code, f"[trunkline.agents]\n{point.format(module)}\n")
    assert list(load_plugins()) == BUNDLED
    (reason,) = ignored_plugins(caplog).values()
    assert problem in reason


def test_a_plugin_whose_servers_fail_logs_one_line(
    installer: Installer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    code = WEATHER.replace("if not context.settings.station:", "if 1 / 0:")
    installer.install("aloha3", code, "[trunkline.agents]\nweather = aloha3:plugin\n")
    config = load_mcp_config(load_settings(folder=tmp_path))
    assert {"math", "currency", "research"} <= config.servers.keys()
    assert ignored_plugins(caplog) == {"weather": "ZeroDivisionError: division by zero"}


def test_deleting_a_folder_deletes_just_that_agent(tmp_path: Path) -> None:
    """A leftover entry point costs one line in the log."""
    source = Path(trunkline_agents.__file__).parent
    copy = tmp_path / "trunkline_agents"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / "currency")
    program = (
        "import logging; logging.basicConfig(format='%(message)s %(plugin)s')\n"
        "from trunkline.agents.plugins import load_plugins\n"
        "from trunkline.processes.tools import load_mcp_config\n"
        "from trunkline.core.settings import Settings\n"
        "plugins = load_plugins()\n"
        "print(*plugins, *load_mcp_config(Settings(), plugins).servers)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout.split() == ["argocd", "echo", "math", "research", "math", "research"]
    assert process.stderr.splitlines() == ["plugin.ignored currency"]


async def answer(task: TaskContext) -> str:
    return task.text


FLOWS = """
from pathlib import Path
from trunkline import WorkflowPlugin, agent

@agent(name="helper", description="Helps.")
async def helper(task):
    return "helped"

@agent(name="mine", description="Is there already.")
async def mine(task):
    return "mine"

FILE = Path(__file__).with_suffix(".yaml")
plugin = WorkflowPlugin(file=FILE, agents=[helper, mine])
"""
FLOW = """
name: hop
nodes: [{id: start, type: start}, {id: end, type: end}]
edges: [{from: start, to: end}]
"""


def test_the_workflows_that_ship_have_their_files_and_agents() -> None:
    assert list_plugin_names() == ["direct-broadcast", "review"]
    brought = load_plugin_agents(["review", "direct-broadcast", "flows"])
    names = {flow: [each.card.name for each in agents] for flow, agents in brought.items()}
    assert names == {"review": ["writer", "reviewer"], "direct-broadcast": []}
    flows = load_workflow_agents(["review", "direct-broadcast"])
    assert [flow.card.name for flow in flows] == ["review", "direct-broadcast"]


@pytest.mark.parametrize("joining", [(), ("helper",)])
async def test_a_workflow_of_a_package_brings_the_agents_that_a_mesh_lacks(
    installer: Installer, joining: tuple[str, ...]
) -> None:
    name = f"flows{len(joining)}"
    installer.install(name, FLOWS, f"[trunkline.workflows]\nhop = {name}:plugin\n")
    (installer.folder / f"{name}.yaml").write_text(FLOW)
    settings = Settings(workflows=("hop",), joining=joining)
    async with ChannelPool(mesh_credentials()) as channels:
        agents = build_agents(
            settings,
            load_mcp_config(settings, {}),
            Directory(channels, "127.0.0.1:1"),
            plugins={},
            names=[],
            others=[agent(name="mine", description="Is there.")(answer)],
        )
    found = [agent.card.name for agent in agents]
    assert found == ["mine", "hop", *([] if joining else ["helper"])]
    assert map_brought_agents(agents, settings) == ({} if joining else {"helper": "hop"})


async def test_a_named_agent_may_be_one_that_the_settings_or_a_workflow_bring(
    installer: Installer,
) -> None:
    installer.install("school", FLOWS, "[trunkline.workflows]\nlesson = school:plugin\n")
    (installer.folder / "school.yaml").write_text(FLOW)
    settings = Settings(agents=("school:mine",), workflows=("lesson",))
    async with ChannelPool(mesh_credentials()) as channels:
        directory = Directory(channels, "127.0.0.1:1")

        def build(*names: str) -> list[str]:
            config = load_mcp_config(settings, {})
            agents = build_agents(settings, config, directory, plugins={}, names=names)
            return [agent.card.name for agent in agents]

        assert build("mine") == ["mine", "hop", "helper"]
        assert build("helper", "supervisor", "hop") == ["supervisor", "mine", "hop", "helper"]
        with pytest.raises(ConfigurationError, match="agent 'sink': no such agent; there are"):
            build("mine", "sink")


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ("hop = {0}:FILE\n", "is no WorkflowPlugin"),
        ("hop = {0}:nothing\n", "can't be loaded: AttributeError"),
        ("review = {0}:plugin\n", "two packages have it"),
    ],
)
def test_a_workflow_that_can_not_be_loaded_is_an_error(
    installer: Installer, points: str, problem: str
) -> None:
    module = f"flows_{abs(hash(problem))}"
    installer.install(module, FLOWS, f"[trunkline.workflows]\n{points.format(module)}")
    with pytest.raises(ConfigurationError, match=problem):
        load_workflow_agents([points.partition(" ")[0]])


def test_the_installed_workflows_are_named_if_one_is_not_found() -> None:
    problem = (
        "no such file or folder, and of the installed workflows only: direct-broadcast, review"
    )
    with pytest.raises(ConfigurationError, match=f"^reviews: there is {problem}$"):
        load_workflow_agents(["reviews"])


def test_a_package_adds_a_command(installer: Installer) -> None:
    points = "[trunkline.commands]\nweather = aloha4:commands\nbad = aloha4:nothing\n"
    installer.install("aloha4", WEATHER, points)

    assert run_in_process("weather", "now").out == "sunny\n"
    overview = run_in_process("--help").out
    assert "Look at the weather." in overview
    assert "docs" in overview
    assert "no such command 'bad'" in run_in_process("bad").err.lower()


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
