"""Artifact content is compared with a snapshot, independent of how its text is split."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline.v1.part_pb2 import Part
from trunkline_bridge.client.task_mirror import ArtifactContent


def plain(*texts: str) -> list[Part]:
    return [Part(text=text) for text in texts]


PARTS = st.lists(
    st.one_of(
        st.text("ab", max_size=3).map(lambda text: Part(text=text)),
        st.text("ab", max_size=2).map(lambda text: Part(text=text, media_type="text/markdown")),
        st.binary(max_size=2).map(lambda raw: Part(raw=raw)),
    ),
    max_size=6,
)


@given(PARTS, PARTS)
def test_the_rest_makes_the_one_into_the_other(before: list[Part], after: list[Part]) -> None:
    whole = [*before, *after]
    rest = ArtifactContent(before).find_suffix(whole)
    assert rest is not None
    assert ArtifactContent([*before, *rest]).items() == ArtifactContent(whole).items()


@given(PARTS, PARTS)
def test_a_rest_is_told_only_where_one_begins_like_the_other(
    ours: list[Part], theirs: list[Part]
) -> None:
    rest = ArtifactContent(ours).find_suffix(theirs)
    if rest is not None:
        assert ArtifactContent([*ours, *rest]).items() == ArtifactContent(theirs).items()


def test_texts_are_joined_before_they_are_compared() -> None:
    assert ArtifactContent(plain("on", "e ")).find_suffix(plain("o", "ne t", "wo")) == plain("two")


def test_other_texts_and_less_text_are_no_beginnings() -> None:
    assert ArtifactContent(plain("one")).find_suffix(plain("two")) is None
    assert ArtifactContent(plain("one")).find_suffix(plain("on")) is None
    assert ArtifactContent(plain("one")).find_suffix([]) is None


def test_the_same_has_no_rest() -> None:
    assert ArtifactContent(plain("one")).find_suffix(plain("one", "")) == []
