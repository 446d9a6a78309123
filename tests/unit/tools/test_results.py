import pytest

from trunkline.core.json_values import update_struct
from trunkline.errors import JournalUnavailableError
from trunkline.tools.results import limit_result_size
from trunkline.v1 import part_pb2, tool_service_pb2

LIMIT_BYTES = 100_000
BIG = b"x" * 70_000


class Uploader:
    """Records uploaded contents in order."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    async def __call__(self, content: bytes, description: part_pb2.Part) -> part_pb2.Part:
        self.contents.append(content)
        url = f"trunkline:t/{len(self.contents)}"
        return part_pb2.Part(
            url=url, media_type=description.media_type, filename=description.filename
        )


def result(
    *content: part_pb2.Part, structured: dict[str, str] | None = None
) -> tool_service_pb2.ToolResult:
    tool_result = tool_service_pb2.ToolResult(content=content)
    if structured is not None:
        update_struct(tool_result.structured_content, structured)
    return tool_result


async def limit_size(
    answer: tool_service_pb2.ToolResult, uploader: Uploader | None
) -> tool_service_pb2.ToolResult:
    return await limit_result_size(answer, tool="s/t", limit_bytes=LIMIT_BYTES, upload=uploader)


@pytest.mark.parametrize("text", ["", "the rows"])
async def test_structured_content_is_dropped_in_favour_of_text(text: str) -> None:
    uploader = Uploader()
    parts = [part_pb2.Part(text=text)] if text else []
    answer = await limit_size(result(*parts, structured={"rows": "x" * LIMIT_BYTES}), uploader)
    assert not answer.HasField("structured_content")
    assert answer.content[0].text.startswith(text or '{"rows": "xxx')
    assert bool(uploader.contents) == (not text)


async def test_a_large_result_without_an_uploader_is_reported_as_a_failure() -> None:
    for large in (
        result(part_pb2.Part(text="x" * LIMIT_BYTES)),
        result(structured={"rows": "x" * LIMIT_BYTES}),
    ):
        answer = await limit_size(large, None)
        assert answer.is_error
        assert "s/t answered with 100" in answer.content[0].text
        assert "the limit is 100000; ask for less." in answer.content[0].text


async def test_many_small_texts_over_the_limit_are_a_failure() -> None:
    many = result(*(part_pb2.Part(text="x" * 3000) for _ in range(40)))
    answer = await limit_size(many, Uploader())
    assert "ask for less" in answer.content[0].text


async def test_a_failed_upload_is_reported_with_its_reason() -> None:
    async def raise_disk_full(_content: bytes, _about: part_pb2.Part) -> part_pb2.Part:
        raise JournalUnavailableError("j.db", "the disk is full")

    answer = await limit_result_size(
        result(part_pb2.Part(raw=BIG)), tool="s/t", limit_bytes=LIMIT_BYTES, upload=raise_disk_full
    )
    assert answer.is_error
    assert "can't be stored" in answer.content[0].text
    assert "the disk is full" in answer.content[0].text
