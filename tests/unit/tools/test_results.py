import pytest

from trunkline.errors import JournalUnavailableError
from trunkline.tools.results import limit_result_size
from trunkline.v1 import part_pb2, tool_service_pb2

LIMIT_BYTES = 100_000
BIG = b"x" * 70_000


class Uploader:
    """Records uploaded contents in order."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    async def __call__(self, content: bytes, about: part_pb2.Part) -> part_pb2.Part:
        self.contents.append(content)
        url = f"trunkline:t/{len(self.contents)}"
        return part_pb2.Part(url=url, media_type=about.media_type, filename=about.filename)


def result(
    *content: part_pb2.Part, structured: dict[str, str] | None = None
) -> tool_service_pb2.ToolResult:
    made = tool_service_pb2.ToolResult(content=content)
    if structured is not None:
        made.structured_content.update(structured)
    return made


async def fitted(
    answer: tool_service_pb2.ToolResult, uploader: Uploader | None
) -> tool_service_pb2.ToolResult:
    return await limit_result_size(answer, tool="s/t", limit_bytes=LIMIT_BYTES, upload=uploader)


async def test_what_fits_stays_as_it_is() -> None:
    uploader = Uploader()
    small = result(part_pb2.Part(text="x"), part_pb2.Part(raw=b"y"), structured={"a": "b"})
    before = small.SerializeToString(deterministic=True)
    answer = await fitted(small, uploader)
    assert answer.SerializeToString(deterministic=True) == before
    assert uploader.contents == []


async def test_bytes_that_must_not_ride_in_events_go_by_reference_whatever_the_rest() -> None:
    uploader = Uploader()
    image = part_pb2.Part(raw=BIG, media_type="image/png", filename="a.png")
    (said, part) = (await fitted(result(part_pb2.Part(text="x"), image), uploader)).content
    assert said.text == "x"
    assert (part.url, part.media_type, part.filename) == ("trunkline:t/1", "image/png", "a.png")
    assert uploader.contents == [BIG]


async def test_the_longest_text_goes_by_reference_and_its_beginning_stays() -> None:
    uploader = Uploader()
    long = "ö" * LIMIT_BYTES
    (first, head, part) = (
        await fitted(result(part_pb2.Part(text="x"), part_pb2.Part(text=long)), uploader)
    ).content
    assert first.text == "x"
    assert head.text.startswith("ö" * 4000 + "\n[100000 characters in all")
    assert (part.url, uploader.contents) == ("trunkline:t/1", [long.encode()])


@pytest.mark.parametrize("text", ["", "the rows"])
async def test_what_is_structured_gives_way_to_the_text_that_says_the_same(text: str) -> None:
    uploader = Uploader()
    parts = [part_pb2.Part(text=text)] if text else []
    answer = await fitted(result(*parts, structured={"rows": "x" * LIMIT_BYTES}), uploader)
    assert not answer.HasField("structured_content")
    assert answer.content[0].text.startswith(text or '{"rows": "xxx')
    assert bool(uploader.contents) == (not text)


async def test_without_a_task_to_keep_it_with_a_large_result_is_a_failure_that_says_so() -> None:
    for large in (
        result(part_pb2.Part(text="x" * LIMIT_BYTES)),
        result(structured={"rows": "x" * LIMIT_BYTES}),
    ):
        answer = await fitted(large, None)
        assert answer.is_error
        assert "s/t answered with 100" in answer.content[0].text
        assert "the limit is 100000; ask for less." in answer.content[0].text


async def test_many_small_texts_that_are_too_much_together_are_a_failure() -> None:
    many = result(*(part_pb2.Part(text="x" * 3000) for _ in range(40)))
    answer = await fitted(many, Uploader())
    assert "ask for less" in answer.content[0].text


async def test_what_can_not_be_kept_is_a_failure_that_says_why() -> None:
    async def full(_content: bytes, _about: part_pb2.Part) -> part_pb2.Part:
        raise JournalUnavailableError("j.db", "the disk is full")

    answer = await limit_result_size(
        result(part_pb2.Part(raw=BIG)), tool="s/t", limit_bytes=LIMIT_BYTES, upload=full
    )
    assert answer.is_error
    assert "can't be stored" in answer.content[0].text
    assert "the disk is full" in answer.content[0].text
