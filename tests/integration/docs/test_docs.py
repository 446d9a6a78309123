"""Every command and snippet of README.md and docs/ works as written.

Console blocks marked `<!-- run -->` run against a mesh, line by line. In all others each
`trunkline` command must exist with its flags. Python blocks are imported, TOML blocks are loaded as
settings, JSON blocks as `mcpServers` files, YAML blocks as workflows.
"""

import asyncio
import json
import re
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from harness.mesh.command_line import LIMIT_S, run_command, start_process
from harness.mesh.processes import MeshProcess, running_mesh
from harness.pages import ROOT, Block, blocks, commands, pages, trunkline_words
from trunkline.core.settings import Settings, load_settings
from trunkline.errors import ConfigurationError
from trunkline.tools.config import load_config
from trunkline.workflows.reader import parse_source
from trunkline.workflows.validation import validate_source

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
MESH_URL = "http://127.0.0.1:8000"
HELP_TEXTS: dict[tuple[str, ...], str] = {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeshProcess]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(
            running_mesh(tmp_path_factory.mktemp("docs"), servers=("math", "currency"))
        )


RUN_BLOCKS = [block for block in blocks("console") if block.is_run]
SHOWN_BLOCKS = [block for block in blocks("console") if not block.is_run]


@pytest.mark.parametrize("block", RUN_BLOCKS, ids=str)
async def test_marked_commands_run_and_print_what_the_page_shows(
    mesh: MeshProcess, block: Block
) -> None:
    for words, shown in commands(block):
        printed = await run_shown(mesh, words)
        if shown != ["..."]:
            assert shown == printed.splitlines()[: len(shown)]


async def run_shown(mesh: MeshProcess, words: list[str]) -> str:
    if words[0] == "curl":
        return await send_as_curl(mesh, words[1:])
    arguments = trunkline_words(words)
    assert arguments is not None, words
    done = await run_command(
        *arguments, TRUNKLINE_URL=mesh.http_url, TRUNKLINE_MESH=mesh.mesh_address
    )
    assert done.exit == 0, done
    assert done.out
    return done.out


async def send_as_curl(mesh: MeshProcess, words: list[str]) -> str:
    """Send the request of a curl command, for machines without curl."""
    rest = iter(words)
    headers: dict[str, str] = {}
    url = body = ""
    for word in rest:
        match word:
            case "-H":
                name, _, value = next(rest).partition(":")
                headers[name] = value.strip()
            case "-d":
                body = next(rest)
            case "-N":
                pass
            case _:
                url = word
    assert url.startswith(MESH_URL)
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as client:
        url = mesh.http_url + url.removeprefix(MESH_URL)
        response = await client.post(url, headers=headers, content=body)
    assert response.status_code == 200, response.text
    assert "3" in response.text
    return response.text


@pytest.mark.parametrize("block", SHOWN_BLOCKS, ids=str)
async def test_shown_commands_exist_with_their_flags(block: Block) -> None:
    for words, _ in commands(block):
        arguments = trunkline_words(words)
        if arguments is None:
            check_other_command(words)
            continue
        names = [word for word in arguments if not word.startswith("-")]
        flags = {word for word in arguments if word.startswith("--")}
        # Groups have their commands as the next words: `trunkline a2a task get`.
        depth = 1
        while "\nCommands:" in (text := await read_help(*names[:depth])) and depth < len(names):
            depth += 1
        assert {flag for flag in flags if flag not in text} == set(), words


async def read_help(*names: str) -> str:
    """Return the help of a command. Many pages show the same command: it runs once."""
    if names not in HELP_TEXTS:
        done = await run_command(*names, "--help")
        assert done.exit == 0, (names, done.err)
        HELP_TEXTS[names] = done.out
    return HELP_TEXTS[names]


def check_other_command(words: list[str]) -> None:
    """Accept `make TARGET` of the Makefile, installs of our wheel or extras, and a few programs."""
    wheel = f"build/wheel/trunkline-{version('trunkline')}-py3-none-any.whl"
    if words in (["uv", "tool", "install", "--compile-bytecode", wheel], ["pip", "install", wheel]):
        return
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words
    elif words[:2] == ["pip", "install"]:
        extras = re.fullmatch(r"trunkline\[([\w,]+)\]", words[2])
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        assert extras is not None, words
        for extra in extras[1].split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), words
    else:
        shell = {"exit", "export", "kill", "rm", "scp", "ssh", "unset"}
        programs = {"python", ".venv/bin/python", *shell}
        assert words[0] in programs, words


@pytest.mark.parametrize("block", blocks("python"), ids=str)
async def test_python_snippets_can_be_imported(block: Block, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(block.text, encoding="utf-8")
    # A test function of the snippet runs, too.
    script = "import snippet; [f() for n, f in vars(snippet).items() if n.startswith('test_')]"
    process = await start_process(
        *(sys.executable, "-c", script),
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_S):
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
async def test_settings_snippets_are_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text(block.text, encoding="utf-8")
    loaded = load_settings(environment={}, folder=tmp_path)
    assert isinstance(loaded, Settings)


async def test_the_check_of_settings_snippets_can_fail(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text("no_such_setting = 1\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="no_such_setting"):
        load_settings(environment={}, folder=tmp_path)


@pytest.mark.parametrize("block", blocks("json"), ids=str)
async def test_tool_files_are_valid(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(block.text, encoding="utf-8")
    config = load_config(path)
    assert set(json.loads(block.text)["mcpServers"]) <= set(config.servers)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
async def test_workflow_files_are_valid(block: Block) -> None:
    file = block.text.splitlines()[0].removeprefix("# ")
    validation = validate_source(parse_source(block.text.encode(), file))
    assert validation.faults == ()


async def test_the_quickstart_names_all_extras() -> None:
    text = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    named = text.partition("Extras add what a mesh can also use:")[2].partition(".")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(re.findall(r"`(\w+)`", named))
    assert extras == set(project["optional-dependencies"])


async def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
