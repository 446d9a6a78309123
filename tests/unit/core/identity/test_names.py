"""Identities as SPIFFE ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.identity import Identity, Role

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(mesh=NAMES, agents=st.sets(NAMES, min_size=1, max_size=5))
def test_an_identity_is_read_as_it_was_written(mesh: str, agents: set[str]) -> None:
    identity = Identity.for_agents(mesh, agents)
    assert Identity.parse(str(identity)) == identity


@pytest.mark.parametrize("role", [Role.MEMBER, Role.BRIDGE, Role.TOOLS])
def test_roles_without_names_are_read_as_they_were_written(role: Role) -> None:
    assert Identity.parse(f"spiffe://m/{role}") == Identity("m", role)
    assert Identity.parse(f"spiffe://m/{role}/-/a1") == Identity("m", role, instance="a1")


def test_instances_have_the_same_subject_and_other_names_as_servers() -> None:
    first, second = (Identity.parse(f"spiffe://m/agents/a/b/-/{name}") for name in ("1", "2"))
    assert first.subject == second.subject == "agents/a/b"
    assert first.agents == {"a", "b"}
    assert first.server_name != second.server_name


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://m",
        "spiffe://m/",
        "spiffe://m/root",
        "spiffe://m/member/more",
        "spiffe://m/agents",
        "spiffe://m/agents/",
        "spiffe://m/agents/a//b",
        "spiffe://m/agents/..",
        "spiffe://m/agents/-",
        "spiffe://m/agents/a/-",
        "spiffe://m/agents/-/a1",
        "spiffe://m/member/-/",
        "spiffe://m/member/-/a/b",
        "spiffe://m/agents/a b",
        "spiffe:///member",
        "spiffe://m:1/member",
        "spiffe://user@m/member",
        "https://m/member",
        "SPIFFE://m/member",
        f"spiffe://m/agents/{'a' * 64}",
        "spiffe://m/agents/" + "/".join(f"a{n}" for n in range(1000)),
    ],
)
def test_what_is_no_identity_is_refused(uri: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each has its own text
        Identity.parse(uri)
