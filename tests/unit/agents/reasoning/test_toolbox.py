from trunkline.agents.reasoning.toolbox import Toolbox
from trunkline.core.json_values import update_struct
from trunkline.v1 import tool_service_pb2


def tool(server: str, name: str) -> tool_service_pb2.Tool:
    return tool_service_pb2.Tool(server=server, name=name)


def names(box: Toolbox) -> list[str]:
    return [spec["function"]["name"] for spec in box.specs(with_metadata=False)]


def test_tools_of_one_name_on_two_servers_get_distinct_names() -> None:
    box = Toolbox([tool("a", "run"), tool("b", "run")])
    assert names(box) == ["a__run", "b__run"]
    located = box.find("b__run")
    assert located is not None
    assert located.server == "b"
    assert box.find("c__run") is None


def test_tool_names_are_valid_for_every_provider() -> None:
    box = Toolbox([tool("my server", "x" * 100), tool("my.server", "x" * 100)])
    first, second = names(box)
    assert first == "my_server__" + "x" * 53
    assert second == "my_server__" + "x" * 51 + "_2"


def test_metadata_is_sent_only_to_the_built_in_model() -> None:
    tool_with_metadata = tool("a", "run")
    tool_with_metadata.title = "Run"
    update_struct(tool_with_metadata.metadata, {"trunkline/match": []})
    update_struct(tool_with_metadata.input_schema, {"type": "object"})
    box = Toolbox([tool_with_metadata])
    assert box.specs(with_metadata=True)[0]["metadata"] == {"trunkline/match": [], "title": "Run"}
    assert box.specs(with_metadata=False) == [
        {
            "type": "function",
            "function": {"name": "a__run", "description": "Run", "parameters": {"type": "object"}},
        }
    ]
