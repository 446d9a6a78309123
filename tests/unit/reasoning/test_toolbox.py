from trunkline.reasoning.toolbox import Toolbox
from trunkline.v1 import tool_service_pb2


def tool(server: str, name: str) -> tool_service_pb2.Tool:
    return tool_service_pb2.Tool(server=server, name=name)


def names(box: Toolbox) -> list[str]:
    return [spec["function"]["name"] for spec in box.specs(with_metadata=False)]


def test_tools_of_one_name_on_two_servers_stay_apart() -> None:
    box = Toolbox([tool("a", "run"), tool("b", "run")])
    assert names(box) == ["a__run", "b__run"]
    found = box.find("b__run")
    assert found is not None
    assert found.server == "b"
    assert box.find("c__run") is None


def test_names_are_such_as_every_provider_takes() -> None:
    box = Toolbox([tool("my server", "x" * 100), tool("my.server", "x" * 100)])
    first, second = names(box)
    assert first == "my_server__" + "x" * 53
    assert second == "my_server__" + "x" * 51 + "_2"


def test_metadata_is_for_models_of_ours_only() -> None:
    declared = tool("a", "run")
    declared.title = "Run"
    declared.metadata.update({"trunkline/match": []})
    declared.input_schema.update({"type": "object"})
    box = Toolbox([declared])
    assert box.specs(with_metadata=True)[0]["metadata"] == {"trunkline/match": [], "title": "Run"}
    assert box.specs(with_metadata=False) == [
        {
            "type": "function",
            "function": {"name": "a__run", "description": "Run", "parameters": {"type": "object"}},
        }
    ]
