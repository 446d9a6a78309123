"""The research tool that the rules model calls for a question, and its arguments."""

import time
from typing import Any

import pytest

from trunkline.reasoning.models.tool_matching import match_tool, match_tools
from trunkline_agents.research import patterns

DECLARED = {
    "search_arxiv": patterns.ARXIV,
    "web_search": patterns.WEB,
    "search_documents": patterns.DOCUMENTS,
}


def asked(question: str) -> tuple[str, dict[str, Any]]:
    found = match_tool(question, DECLARED)
    assert found is not None
    return found.tool, found.arguments


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("what do the documents say about leave", "leave"),
        ("What does the handbook say about sick leave?", "sick leave"),
        ("search the docs for release notes", "release notes"),
        ("please look in my notes for the wifi password", "the wifi password"),
        ("according to the handbook, how many days of leave are there?",
         "how many days of leave are there"),
        ("how many days of leave are there according to the manual?",
         "how many days of leave are there"),
        ("which port does the cache use in the documentation", "which port does the cache use"),
        ("look up the travel rules", "the travel rules"),
        ("what is the capital of France?", "what is the capital of France?"),
        ("keepalive", "keepalive"),
    ],
)  # fmt: skip
def test_questions_about_documents_and_all_others_are_searched_there(
    question: str, query: str
) -> None:
    assert asked(question) == ("search_documents", {"query": query})


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("search the web for gRPC keepalive", "gRPC keepalive"),
        ("Search the internet for papers on my desk", "papers on my desk"),
        ("google who wrote Hamlet", "who wrote Hamlet"),
        ("who wrote Hamlet on the internet", "who wrote Hamlet"),
        ("find the opening hours of the museum online", "the opening hours of the museum"),
        ("what is the latest news about SQLite?", "latest news about SQLite"),
    ],
)
def test_questions_for_the_web_are_searched_there(question: str, query: str) -> None:
    assert asked(question) == ("web_search", {"query": query})


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("find papers about retrieval augmented generation",
         {"query": "retrieval augmented generation", "newest_first": False}),
        ("search arxiv for attention", {"query": "attention", "newest_first": False}),
        ("arxiv 1706.03762", {"query": "1706.03762", "newest_first": False}),
        ("show me the latest papers on graph networks",
         {"query": "graph networks", "newest_first": True}),
        ("are there preprints about superconductors on arxiv?",
         {"query": "superconductors", "newest_first": False}),
        ("papers by Ada Lovelace", {"query": "", "author": "Ada Lovelace", "newest_first": False}),
        ("papers by Ada Lovelace about engines",
         {"query": "engines", "author": "Ada Lovelace", "newest_first": False}),
        ("quantum gravity on arxiv", {"query": "quantum gravity"}),
    ],
)  # fmt: skip
def test_questions_for_papers_are_searched_on_arxiv(
    question: str, arguments: dict[str, Any]
) -> None:
    assert asked(question) == ("search_arxiv", arguments)


def test_what_is_asked_of_documents_and_of_papers_at_once_is_searched_in_both() -> None:
    question = "search the documents for paid leave and find the latest papers about leave"
    assert [(one.tool, one.arguments["query"]) for one in match_tools(question, DECLARED)] == [
        ("search_documents", "paid leave"),
        ("search_arxiv", "leave"),
    ]


@pytest.mark.parametrize(
    "question",
    [
        "search " * 280,
        "the " * 500,
        "papers by " * 200,
        "news " * 400,
        " " * 2000,
        "on arxiv " * 222,
        "find papers about x and " * 83,
        "search the docs for x and find " * 8 + "y " * 800,
    ],
)
def test_no_question_takes_long(question: str) -> None:
    before = time.process_time()

    match_tools(question, DECLARED)

    # It takes some hundredths; anything that grows faster than the question takes minutes.
    assert time.process_time() - before < 20
