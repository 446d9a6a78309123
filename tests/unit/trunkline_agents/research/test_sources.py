"""A search result has the relevant sentences, and a line for each source."""

from trunkline_agents.research.documents.search import Term
from trunkline_agents.research.sources import SearchResult, Source, extract_sentences

LONG = " ".join(f"Sentence {number} is about nothing much at all." for number in range(20))


def test_an_excerpt_begins_with_the_most_relevant_sentence() -> None:
    text = f"{LONG} The cache keeps pages for ten minutes. {LONG}"

    excerpt = extract_sentences(text, [Term("cache"), Term("minutes")])

    assert excerpt.startswith("… The cache keeps pages for ten minutes. Sentence 0")
    assert excerpt.endswith(" …")
    assert len(excerpt) < 450


def test_an_excerpt_has_the_short_beginning_of_its_paragraph() -> None:
    text = "One thing.\n\nMaria is the contact for payroll. Salaries are paid on the 25th.\n\nMore."

    assert extract_sentences(text, [Term("salary", others=("salaries",))]) == (
        "… Maria is the contact for payroll. Salaries are paid on the 25th. More."
    )


def test_a_short_text_is_quoted_completely_and_on_one_line() -> None:
    assert extract_sentences("One.\n\nTwo\nlines.", [Term("two")]) == "… Two lines."
    assert extract_sentences("One.\nTwo.", []) == "One. Two."
    assert extract_sentences(" \n", [Term("x")]) == ""
    assert len(extract_sentences("x" * 5000, [Term("x")])) < 450


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
