"""Artifact content is compared with a snapshot, independent of the split of its text."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline.a2a_client.artifact_content import ArtifactContent
from trunkline.v1.part_pb2 import Part


def text_parts(*texts: str) -> list[Part]:
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
def test_content_plus_its_suffix_equals_the_whole(before: list[Part], after: list[Part]) -> None:
    combined = [*before, *after]
    suffix = ArtifactContent(before).find_suffix(combined)
    assert suffix is not None
    assert ArtifactContent([*before, *suffix]).items() == ArtifactContent(combined).items()


@given(PARTS, PARTS)
def test_a_suffix_exists_only_for_a_common_prefix(first: list[Part], second: list[Part]) -> None:
    suffix = ArtifactContent(first).find_suffix(second)
    if suffix is not None:
        assert ArtifactContent([*first, *suffix]).items() == ArtifactContent(second).items()


def test_different_or_shorter_text_has_no_suffix() -> None:
    assert ArtifactContent(text_parts("one")).find_suffix(text_parts("two")) is None
    assert ArtifactContent(text_parts("one")).find_suffix(text_parts("on")) is None
    assert ArtifactContent(text_parts("one")).find_suffix([]) is None
