"""The research server as any client uses it: a process on stdio, and engines on real sockets."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from harness.journal.postgres_server import new_database
from harness.mesh.command_line import run_command
from harness.pages import ROOT, read_blocks
from harness.remote.search_engines import Engines, Reply, Script, as_json, feed, search_engines
from trunkline.core.postgres import PostgresDatabase
from trunkline.embeddings import EmbeddingModel
from trunkline_agents.research.documents.adding import add_documents
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex

LEAVE = "# Time off\n\n## Paid leave\n\nEmployees have 28 days of paid leave a year.\n"
HUGE = b'{"results": [' + b'{"title": "x"},' * 400_000
BOMB = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>
<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>&b;</id></entry></feed>"""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "handbook.md").write_text(LEAVE)
    with SqliteDocumentStore.open(folder / "documents.db") as store:
        add_documents(store, [folder / "handbook.md"])
    return folder / "documents.db"


@asynccontextmanager
async def server(documents: Path | None, *options: str, **variables: str) -> AsyncIterator[Client]:
    program = "from trunkline_agents.research.server import main; main()"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    # No local call may go through a proxy of the environment.
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-c", program, f"--documents={documents or ''}", *options],
        env={**kept, **proxies, **variables},
    )
    async with Client(parameters) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def sources_of(result: CallToolResult) -> list[dict[str, Any]]:
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    sources: list[dict[str, Any]] = result.structured_content["sources"]
    return sources


async def test_read_only_tools_quote_documents_with_their_location(documents: Path) -> None:
    async with server(documents) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("search_documents", {"query": "days of paid leave"})

    assert text_of(result) == (
        "[1] Employees have 28 days of paid leave a year.\n\n"
        'Sources:\n[1] Time off, section "Paid leave", line 5, handbook.md'
    )
    (source,) = sources_of(result)
    assert source["location"] == "handbook.md"
    assert source["text"] == "Employees have 28 days of paid leave a year."
    assert set(tools) == {"search_arxiv", "web_search", "search_documents"}
    for tool in tools.values():
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.output_schema is not None
        assert tool.meta is not None
        assert tool.meta["trunkline/match"]


async def test_an_unavailable_search_is_reported_and_the_documents_answer(documents: Path) -> None:
    async with server(documents, "--arxiv-url=", "--tavily-key-env=MY_KEY") as client:
        web = await client.call_tool("web_search", {"query": "days of paid leave"})
        papers = await client.call_tool("search_arxiv", {"query": "paid leave"})
        no_engine = await client.call_tool("web_search", {"query": "who wrote Hamlet"})

    first, instead, quoted, *_ = text_of(web).split("\n\n")
    assert first.startswith("Web search is unavailable: set the variable MY_KEY")
    assert "searxng_url under [research]" in first
    assert instead == "From the documents instead:"
    assert "28 days" in quoted
    assert text_of(papers).startswith("arXiv is unavailable: set arxiv_url under [research]")
    assert [source["location"] for source in sources_of(papers)] == ["handbook.md"]
    assert no_engine.is_error
    assert "Web search is unavailable" in text_of(no_engine)
    assert "Nothing in the one document fits" in text_of(no_engine)


async def test_invalid_arguments_get_an_error_with_advice(documents: Path, tmp_path: Path) -> None:
    async with server(documents) as client:
        nothing = await client.call_tool("search_documents", {"query": "who wrote Hamlet"})
        blank = await client.call_tool("web_search", {"query": "  "})
        long = await client.call_tool("search_arxiv", {"query": "a" * 1001})
        many = await client.call_tool("search_documents", {"query": "leave", "limit": 100})
    async with server(tmp_path / "none.db") as client:
        none = await client.call_tool("search_documents", {"query": "leave"})

    answers = (nothing, blank, long, many, none)
    assert all(answer.is_error and (answer.meta or {})["trunkline/mendable"] for answer in answers)
    assert [text_of(answer) for answer in answers] == [
        "Nothing in the one document fits 'who wrote Hamlet'; ask with other words.",
        "Say what is looked for.",
        "Ask with at most 1000 characters.",
        "Ask for 1 to 10 results.",
        "There are no documents yet; `trunkline docs add PATH` adds some.",
    ]
    assert not (tmp_path / "none.db").exists()


async def test_the_web_is_searched_with_tavily_by_its_key(documents: Path) -> None:
    async with search_engines() as engines:
        options = (f"--tavily-url={engines.url}/tavily",)
        async with server(documents, *options, TAVILY_API_KEY="tvly-secret") as client:
            result = await client.call_tool("web_search", {"query": "gRPC keepalive", "limit": 3})

    (asked,) = engines.requests
    assert asked.headers["authorization"] == "Bearer tvly-secret"
    assert asked.body == {"query": "gRPC keepalive", "max_results": 3, "search_depth": "basic"}
    assert [(source["title"], source["location"]) for source in sources_of(result)] == [
        ("Keepalive", "https://a.example/keepalive"),
        ("No content", "https://b.example/"),
    ]
    assert "[1] Keepalive, https://a.example/keepalive" in text_of(result)
    assert "tvly-secret" not in text_of(result)
    assert "\x1b" not in text_of(result)


async def test_a_searxng_comes_before_tavily(documents: Path) -> None:
    async with search_engines() as engines:
        options = (f"--searxng-url={engines.url}/searxng", f"--tavily-url={engines.url}/tavily")
        async with server(documents, *options, TAVILY_API_KEY="k") as client:
            result = await client.call_tool("web_search", {"query": "keepalive"})
            engines.scripts["/searxng/search"] = lambda _: as_json({}, 403)
            closed = await client.call_tool("web_search", {"query": "paid leave"})

    asked, _ = engines.requests
    assert "add json to search.formats in its settings.yml" in text_of(closed)
    assert (asked.path, asked.query) == ("/searxng/search", {"q": "keepalive", "format": "json"})
    assert len(sources_of(result)) == 1


async def test_papers_are_found_by_words_authors_and_ids(documents: Path) -> None:
    words = {"query": "attention in networks", "author": "A. Vaswani", "newest_first": True}
    async with (
        search_engines() as engines,
        server(documents, f"--arxiv-url={engines.url}/arxiv") as client,
    ):
        result = await client.call_tool("search_arxiv", words)
        await client.call_tool("search_arxiv", {"query": "arXiv:1706.03762v7"})
        await client.call_tool("search_arxiv", {"query": "About by the?"})
        # arXiv gets no query without words.
        await client.call_tool("search_arxiv", {"query": "?!"})

    assert text_of(result) == (
        "[1] We propose the Transformer.\n\nSources:\n[1] Attention Is All You Need, "
        "A. Author, B. Author, 2017, https://arxiv.org/abs/1706.03762v7"
    )
    by_words, by_id, common = (request.query for request in engines.requests)
    assert by_words["search_query"] == 'all:"attention" AND all:"networks" AND au:"A Vaswani"'
    assert by_words["sortBy"] == "submittedDate"
    assert by_id["id_list"] == "1706.03762v7"
    assert common["search_query"] == 'all:"About" AND all:"by" AND all:"the"'


TROUBLE: dict[str, tuple[str, Script, str]] = {
    "refused key": ("web", lambda _: as_json({}, 401), "HTTP 401: the key is refused"),
    "too often": ("web", lambda _: as_json({}, 429), "HTTP 429: too many requests"),
    "broken": ("web", lambda _: Reply(b"<html>"), "something else than JSON"),
    "deep": ("web", lambda _: Reply(b"[" * 1_000_000), "something else than JSON"),
    "no results": ("web", lambda _: as_json([1]), "something else than results"),
    "too long": ("web", lambda _: Reply(HUGE), "more than 4 MiB"),
    "cut": ("web", lambda _: None, "can't be reached"),
    "elsewhere": (
        "web",
        lambda _: Reply(b"", 302, headers=("location: http://127.0.0.1:9/",)),
        "HTTP 302",
    ),
    "packed": (
        "web",
        lambda _: Reply(b"{}", headers=("content-encoding: gzip",)),
        "an encoding that the request excludes",
    ),
    "xml bomb": ("papers", lambda _: Reply(BOMB), "XML that is refused"),
    "no feed": ("papers", lambda _: Reply(b"<html></html>"), "something else than a feed"),
    "half a feed": ("papers", lambda _: Reply(b"<feed"), "something else than a feed"),
}


async def test_failing_engines_are_named_and_the_documents_answer(documents: Path) -> None:
    texts: dict[str, str] = {}
    async with search_engines() as engines:
        options = (f"--tavily-url={engines.url}/tavily", f"--arxiv-url={engines.url}/arxiv")
        async with server(documents, *options, TAVILY_API_KEY="k") as client:
            for name, (kind, script, _) in TROUBLE.items():
                path = "/tavily/search" if kind == "web" else "/arxiv/api/query"
                engines.scripts[path] = script
                tool = "web_search" if kind == "web" else "search_arxiv"
                result = await client.call_tool(tool, {"query": "days of paid leave"})
                assert [source["location"] for source in sources_of(result)] == ["handbook.md"]
                texts[name] = text_of(result).split("\n\n")[0]

    missing = {name: texts[name] for name, (*_, why) in TROUBLE.items() if why not in texts[name]}
    assert missing == {}


async def test_engines_without_results_are_reported(documents: Path) -> None:
    async with search_engines() as engines:
        engines.scripts["/searxng/search"] = lambda _: as_json({"results": []})
        engines.scripts["/arxiv/api/query"] = lambda _: feed()
        options = (f"--searxng-url={engines.url}/searxng", f"--arxiv-url={engines.url}/arxiv")
        async with server(documents, *options) as client:
            web = await client.call_tool("web_search", {"query": "xyzzy"})
            papers = await client.call_tool("search_arxiv", {"query": "xyzzy"})

    assert text_of(web) == "Web search finds nothing for 'xyzzy'."
    assert text_of(papers) == "arXiv finds nothing for 'xyzzy'."


async def test_with_vectors_documents_are_found_by_meaning(tmp_path: Path) -> None:
    async with search_engines() as engines:
        model = ("--embeddings=openai:any", f"--embeddings-url={engines.url}/v1")
        documents = await with_vectors(tmp_path, engines)
        async with server(documents, *model) as client:
            result = await client.call_tool("search_documents", {"query": "vacation"})
            engines.scripts["/v1/embeddings"] = lambda _: as_json({"error": "secret"}, 400)
            words = await client.call_tool("search_documents", {"query": "paid leave"})

    assert [source["location"] for source in sources_of(result)] == ["pages/handbook.md"]
    first, quoted, _ = text_of(words).split("\n\n")
    assert first.startswith("Search by meaning is unavailable:")
    assert "secret" not in first
    assert "28 days" in quoted


async def test_documents_of_a_database_are_added_by_a_command_and_found(tmp_path: Path) -> None:
    (tmp_path / "handbook.md").write_text(LEAVE)
    async with new_database() as url:
        for words, expected in (
            (("add", str(tmp_path / "handbook.md")), "added handbook.md"),
            (("list",), "handbook.md"),
            (("search", "paid", "leave"), "28 days"),
        ):
            done = await run_command("docs", *words, folder=tmp_path, TRUNKLINE_STORE=url)
            assert (done.exit, expected in done.out) == (0, True), done.err
            assert ("until [research] documents_store is set" in done.err) == (words[0] == "add")
        assert not await asyncio.to_thread(lambda: list(tmp_path.rglob("documents.db")))
        async with server(None) as client:
            refused = await client.call_tool("search_documents", {"query": "days of paid leave"})
            assert "set documents_store under [research]" in text_of(refused)
        reader = await add_reader(url)
        async with server(None, TRUNKLINE_DOCUMENTS_STORE=reader) as client:
            result = await client.call_tool("search_documents", {"query": "days of paid leave"})
            assert [source["location"] for source in sources_of(result)] == ["handbook.md"]
            done = await run_command(
                "docs", "remove", "handbook.md", folder=tmp_path, TRUNKLINE_STORE=url
            )
            assert done.exit == 0
            empty = await client.call_tool("search_documents", {"query": "days of paid leave"})
            assert "There are no documents yet" in text_of(empty)


async def add_reader(url: str) -> str:
    """Add the role of the documentation, and return its URL."""
    blocks = read_blocks(ROOT / "docs/bundled.md")
    (script,) = (block.text for block in blocks if block.language == "sql")
    schema = url.rpartition("=")[2]
    role = f"librarian_{schema}"
    async with PostgresDatabase(url) as database:
        for statement in script.replace("librarian", role).split(";")[:-1]:
            await database.fetch(statement)
        await database.fetch(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    return url.replace("postgres@", f"{role}@")


async def with_vectors(folder: Path, engines: Engines) -> Path:
    pages = folder / "pages"
    pages.mkdir()
    (pages / "handbook.md").write_text(LEAVE)
    (pages / "travel.md").write_text("# Travel\n\nTrains come before planes.\n")

    def fill() -> None:
        model = EmbeddingModel(name="openai:any", base_url=f"{engines.url}/v1")
        with SqliteDocumentStore.open(folder / "documents.db") as store:
            add_documents(store, [pages], index=VectorIndex(model.open()))

    await asyncio.to_thread(fill)
    return folder / "documents.db"
