"""Drafts and revisions without a model."""

import pytest

from trunkline_agents.review.drafting import draft, read_material, revise
from trunkline_agents.review.rubric import Rubric, RubricCheck, count_words

MATERIAL = (
    "The export is faster. It takes 12 * 5 = 50 seconds. Support answers within a day. "
    "Refunds take ten days."
)


def test_material_that_fits_is_the_draft_as_it_is() -> None:
    text = "Points:\n- one\n- two"
    assert draft(text, Rubric(max_words=10)) == text


@pytest.mark.parametrize(
    ("request_text", "material"),
    [
        ("Write a note for customers: it rains.", "it rains."),
        ("please draft and review a text about rain:\nit rains", "it rains"),
        ("It rains: the river swells.", "It rains: the river swells."),
        ("Write a note.", "Write a note."),
    ],
)
def test_the_material_of_a_request_is_what_stands_behind_its_order(
    request_text: str, material: str
) -> None:
    assert read_material(request_text, "") == material
    assert read_material(request_text, "facts") == "facts"


def test_a_long_text_loses_its_last_sentences_but_those_with_required_terms() -> None:
    shortened = draft(MATERIAL, Rubric(max_words=14, required_terms=["refunds"]))
    assert shortened == "The export is faster. Refunds take ten days."


def test_one_sentence_that_is_too_long_is_cut_at_a_word() -> None:
    assert draft("one two three four five.", Rubric(max_words=3)) == "one two three…"


def test_a_long_run_of_blanks_is_read_in_linear_time() -> None:
    # A search of quadratic time would take minutes.
    assert draft(f"one.{' ' * 200_000}two three.", Rubric(max_words=1)) == "one."


def test_terms_that_no_sentence_has_are_keywords_and_forbidden_ones_are_left_out() -> None:
    rubric = Rubric(required_terms=["invoice"], forbidden_terms=["Support"])
    text = draft(MATERIAL, rubric)
    assert text.endswith("Keywords: invoice.")
    assert "support" not in text.lower()
    assert draft("Cheap support.", Rubric(forbidden_terms=["cheap"])) == "support."


def test_a_revision_mends_what_the_checks_of_the_review_name() -> None:
    checks = [
        RubricCheck(
            rule="arithmetic",
            expected="12 * 5 = 50",
            passed=False,
            correction="12 * 5 = 60",
        ),
        RubricCheck(rule="required_term", expected="refunds", passed=False),
        RubricCheck(rule="max_words", expected="14", passed=True),
    ]
    first = "The export is faster. It takes 12 * 5 = 50 seconds."
    revised = revise(first, MATERIAL, Rubric(), checks)
    assert revised == "The export is faster. Support answers within a day. Refunds take ten days."
    assert count_words(revised) <= 14
    # A sentence that was corrected does not come back from the material.
    long = revise(first, MATERIAL, Rubric(min_words=17), checks[:1])
    assert long.count("12 * 5 = ") == 1
    assert "12 * 5 = 60 seconds" in long


def test_a_revision_adds_sentences_that_the_draft_left_out_until_it_is_long_enough() -> None:
    checks = [RubricCheck(rule="min_words", expected="15", passed=False)]
    revised = revise("The export is faster.", MATERIAL, Rubric(), checks)
    assert revised.startswith("The export is faster. It takes")
    assert count_words(revised) >= 15


def test_large_material_is_drafted_at_once() -> None:
    rubric = Rubric(max_words=50, required_terms=[f"w{number}" for number in range(0, 2000, 40)])
    text = " ".join(f"W{number} is here." for number in range(2000))
    assert count_words(draft(text, rubric)) <= 50
