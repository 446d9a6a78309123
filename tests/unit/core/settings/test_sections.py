import pytest

from trunkline.core.settings import AgentSettings


@pytest.mark.parametrize(
    ("allow", "deny", "may_use"),
    [
        ((), (), ["files/read", "files/write", "git/log"]),
        (("files/*",), (), ["files/read", "files/write"]),
        (("read", "git/l*"), (), ["files/read", "git/log"]),
        ((), ("write",), ["files/read", "git/log"]),
        (("files/*",), ("*/write",), ["files/read"]),
        (("*",), ("*",), []),
        (("FILES/*",), (), []),
    ],
)
def test_an_agent_may_use_what_is_allowed_and_not_denied(
    allow: tuple[str, ...], deny: tuple[str, ...], may_use: list[str]
) -> None:
    options = AgentSettings(allow_tools=allow, deny_tools=deny)
    tools = [("files", "read"), ("files", "write"), ("git", "log")]
    assert [f"{s}/{t}" for s, t in tools if options.allows_tool(s, t)] == may_use
