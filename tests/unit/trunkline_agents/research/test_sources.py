"""A search result has an excerpt of each source, and a line that cites it."""

from trunkline_agents.research.sources import SearchResult, Source


def test_a_source_is_cited_by_title_position_and_location() -> None:
    assert Source("T", "a/b.md", "x", place="page 3").citation == "T, page 3, a/b.md"
    assert Source("a/b.md", "a/b.md", "x", place="line 1").citation == "a/b.md, line 1"
    assert Source("A\n title", "https://a", "x").citation == "A title, https://a"


def test_unavailable_sources_are_reported_first() -> None:
    source = Source("T", "t.md", "Text.")
    result = SearchResult("q", (source,), ("Web search is unavailable: why.",), is_fallback=True)

    assert result.text == (
        "Web search is unavailable: why.\n\nFrom the documents instead:\n\n[1] Text.\n\n"
        "Sources:\n[1] T, t.md"
    )
    assert result.data["unavailable"] == ["Web search is unavailable: why."]
    assert result.data["sources"][0]["citation"] == "T, t.md"


def test_an_excerpt_that_is_a_table_begins_on_a_line_of_its_own() -> None:
    table = "| Day | Open |\n|-----|------|\n| Friday | to 14:00 |"
    result = SearchResult("open on friday", (Source("T", "t.md", table),))

    assert result.text == (
        "[1]\n\n| Day | Open |\n|---|---|\n| Friday | to 14:00 |\n\nSources:\n[1] T, t.md"
    )
