"""The policy: the agents that may call an agent, and the accounts that may use it."""

from pathlib import Path

import pytest
from google.protobuf.message import Message

from trunkline.core.identity import Identity, Role
from trunkline.core.settings import AccountPolicy, PolicySettings, load_settings
from trunkline.errors import ConfigurationError, PermissionDeniedError
from trunkline.mesh.server.policy import Policy, find_acting_agents
from trunkline.v1 import event_pb2, message_service_pb2, task_service_pb2

MEMBER = Identity("mesh-1", Role.MEMBER)
BRIDGE = Identity("mesh-1", Role.BRIDGE)
SETTINGS = PolicySettings(
    callers={"math": ("supervisor",)},
    accounts={
        "acme": AccountPolicy(agents=("supervisor",)),
        "*": AccountPolicy(methods=("GetTask",)),
    },
)


def agents(*names: str) -> Identity:
    return Identity.for_agents("mesh-1", names)


def ask(agent: str, parent: str = "") -> Message:
    request = message_service_pb2.StreamMessageRequest(agent=agent)
    if parent:
        request.submission.parent.CopyFrom(event_pb2.ParentTask(task_id="j-1", agent=parent))
    return request


@pytest.mark.parametrize(
    ("peer", "account", "request_"),
    [
        (BRIDGE, "acme", ask("supervisor")),
        (MEMBER, "acme", ask("math", parent="supervisor")),
        (agents("supervisor"), "acme", ask("math", parent="supervisor")),
        (BRIDGE, "other", task_service_pb2.GetTaskRequest()),
        (BRIDGE, "acme", task_service_pb2.ListTasksRequest(agent="supervisor")),
    ],
)
def test_a_rule_allows(peer: Identity, account: str, request_: Message) -> None:
    Policy(SETTINGS).check(peer, account, request_)


@pytest.mark.parametrize(
    ("peer", "account", "request_", "rule"),
    [
        (BRIDGE, "acme", ask("math"), r"policy\.accounts\.acme\.agents"),
        (MEMBER, "acme", ask("math", parent="echo"), r"policy\.callers\.math"),
        (agents("echo"), "acme", ask("math", parent="echo"), r"policy\.callers\.math"),
        # A process that serves several agents and names none has the rights of none but all.
        (agents("echo", "supervisor"), "acme", ask("supervisor", "other"), "as agent 'other'"),
        (BRIDGE, "other", ask("supervisor"), r"policy\.accounts\.\*\.methods"),
        (BRIDGE, "acme", task_service_pb2.ListTasksRequest(agent="math"), "accounts.acme"),
    ],
)
def test_a_rule_forbids_and_the_error_names_it(
    peer: Identity, account: str, request_: Message, rule: str
) -> None:
    settings = SETTINGS
    if rule.startswith("as agent"):
        settings = PolicySettings(callers={"supervisor": ("echo",)})
    with pytest.raises(PermissionDeniedError, match=rule):
        Policy(settings).check(peer, account, request_)


def test_a_process_acts_only_as_its_own_agents() -> None:
    assert find_acting_agents(agents("echo"), "") == {"echo"}
    assert find_acting_agents(MEMBER, "") == frozenset()
    with pytest.raises(PermissionDeniedError, match="act as agent 'math'"):
        find_acting_agents(agents("echo"), "math")


def test_the_file_sets_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_text(
        '[policy.callers]\nmath = ["supervisor"]\n'
        '[policy.accounts.acme]\nagents = ["supervisor"]\n'
        '[policy.accounts."*"]\nmethods = ["GetTask"]\n'
    )
    assert load_settings(environment={}, folder=tmp_path).policy == SETTINGS
    with pytest.raises(ConfigurationError, match=r"POLICY: write \[policy\] as a table"):
        load_settings(environment={"TRUNKLINE_POLICY": "all"}, folder=tmp_path)
    assert Policy(PolicySettings()).is_empty
