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


def match_call(question: str) -> tuple[str, dict[str, Any]]:
    match = match_tool(question, DECLARED)
    assert match is not None
    return match.tool, match.arguments


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
def test_questions_about_documents_and_all_others_search_the_documents(
    question: str, query: str
) -> None:
    assert match_call(question) == ("search_documents", {"query": query})


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
def test_questions_for_the_web_search_the_web(question: str, query: str) -> None:
    assert match_call(question) == ("web_search", {"query": query})


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
def test_questions_for_papers_search_arxiv(question: str, arguments: dict[str, Any]) -> None:
    assert match_call(question) == ("search_arxiv", arguments)


def test_a_joined_question_searches_documents_and_papers() -> None:
    question = "search the documents for paid leave and find the latest papers about leave"
    assert [(call.tool, call.arguments["query"]) for call in match_tools(question, DECLARED)] == [
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
def test_a_hostile_question_is_matched_quickly(question: str) -> None:
    started_s = time.process_time()

    match_tools(question, DECLARED)

    # Matching takes some hundredths of a second; a superlinear algorithm takes minutes.
    assert time.process_time() - started_s < 20
