from trunkline.agents.reasoning.tool_results import list_result_files, render_for_model
from trunkline.v1 import part_pb2, tool_service_pb2

TEXT = part_pb2.Part(text="both", media_type="text/plain")
IMAGE = part_pb2.Part(raw=b"x", media_type="image/png")
TABLE = part_pb2.Part(text="a,b", media_type="text/csv", filename="t.csv")


def result(*parts: part_pb2.Part) -> tool_service_pb2.ToolResult:
    return tool_service_pb2.ToolResult(content=parts)


def test_the_model_gets_all_text_parts() -> None:
    assert render_for_model(result(TEXT, IMAGE, TABLE)) == "both\na,b"
    assert render_for_model(result()) == ""


def test_a_result_without_text_lists_its_attachments() -> None:
    link = part_pb2.Part(url="https://example.org/a", filename="a")
    assert render_for_model(result(IMAGE, link)) == "Attached: image/png.\nAttached: a (a file)."


def test_binary_parts_and_named_texts_are_files() -> None:
    image, table = list_result_files(result(TEXT, IMAGE, TABLE))
    assert image == IMAGE
    assert (table.raw, table.media_type, table.filename) == (b"a,b", "text/csv", "t.csv")
