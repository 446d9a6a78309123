"""The text that a reader gets of a child that cuts its text and writes it again."""

from trunkline.tasks.calls import GivenText


def test_text_that_is_written_again_is_given_once() -> None:
    given = GivenText()
    given.add("a", ["one ", "two "])
    given.cut("a", "one ")
    assert given.is_stale
    assert [given.add("a", ["tw"]), given.add("a", ["o th"]), given.add("a", ["ree"])] == [
        "",
        "th",
        "ree",
    ]
    assert not given.is_stale


def test_text_is_cut_twice_before_it_is_repeated() -> None:
    given = GivenText()
    given.add("a", ["one two three"])
    given.cut("a", "")
    assert given.add("a", ["one "]) == ""
    given.cut("a", "")
    assert [given.add("a", ["one two thr"]), given.add("a", ["ee four"])] == ["", " four"]
    assert not given.is_stale


def test_other_text_is_not_given() -> None:
    given = GivenText()
    given.add("a", ["one two"])
    given.cut("a", "one ")
    assert [given.add("a", ["three"]), given.add("a", [" four"])] == ["", ""]
    assert given.is_stale


def test_shorter_text_leaves_stale_text() -> None:
    given = GivenText()
    given.add("a", ["one two"])
    given.cut("a", "")
    assert given.add("a", ["one"]) == ""
    assert given.is_stale


def test_each_artifact_is_repeated_by_itself() -> None:
    given = GivenText()
    given.add("a", ["one"])
    given.add("b", ["two"])
    given.cut("a", "")
    given.cut("b", "")
    assert [given.add("b", ["two!"]), given.add("a", ["one!"])] == ["!", "!"]
    assert not given.is_stale


def test_text_of_an_earlier_turn_is_no_part_of_it() -> None:
    given = GivenText()
    given.skip("a", ["before "])
    given.add("a", ["one"])
    given.cut("a", "before ")
    assert given.add("a", ["one two"]) == " two"
    assert not given.is_stale
