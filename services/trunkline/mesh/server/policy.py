"""Applies the mesh's policy to a request: one look-up per rule that concerns it."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from trunkline.core.identity import Identity, Role
from trunkline.core.settings import PolicySettings
from trunkline.errors import PermissionDeniedError
from trunkline.v1 import message_service_pb2, task_service_pb2

_EVERYBODY_ELSE: Final = "*"
_SUBMISSIONS: Final = (
    message_service_pb2.SendMessageRequest,
    message_service_pb2.StreamMessageRequest,
)


@dataclass(frozen=True, slots=True)
class _AccountRules:
    name: str
    agents: Set[str] | None
    methods: Set[str] | None


class Policy:
    """The rules of `[policy]`, prepared for look-ups."""

    def __init__(self, settings: PolicySettings) -> None:
        self._callers = {name: frozenset(callers) for name, callers in settings.callers.items()}
        self._accounts: Mapping[str, _AccountRules] = {
            name: _AccountRules(
                name,
                None if rules.agents is None else frozenset(rules.agents),
                None if rules.methods is None else frozenset(rules.methods),
            )
            for name, rules in settings.accounts.items()
        }
        self._others = self._accounts.get(_EVERYBODY_ELSE)

    @property
    def is_empty(self) -> bool:
        """True if there are no rules."""
        return not (self._callers or self._accounts)

    def check(self, peer: Identity, account: str, request: Message) -> None:
        """Check a request for an account.

        The messaging service has checked the messages that it delivers, which agents may have sent.

        Raises:
            PermissionDeniedError: a rule forbids it. The text names the rule.
        """
        if isinstance(request, message_service_pb2.DeliverMessagesRequest):
            return
        rules = self._accounts.get(account, self._others)
        if rules is not None:
            _check_account(rules, account, request)
        if self._callers and isinstance(request, _SUBMISSIONS):
            callers = self._callers.get(request.agent)
            if callers is not None:
                _check_callers(callers, peer, request)

    def check_message(self, account: str, *, agent: str, recipient: str) -> None:
        """Check that an agent that works for an account, or a user of it, may message an agent.

        Raises:
            PermissionDeniedError: a rule forbids it. The text names the rule.
        """
        if not agent:
            rules = self._accounts.get(account, self._others)
            if rules is not None:
                _check_asked_agent(rules, account, recipient)
            return
        callers = self._callers.get(recipient)
        if callers is not None and agent not in callers:
            action = f"message {recipient!r}: policy.callers.{recipient} does not list it"
            raise PermissionDeniedError(f"agent {agent}", action)


def find_acting_agents(peer: Identity, claimed: str) -> Set[str]:
    """Return the agents that may be acting in a call; empty if a user calls.

    Raises:
        PermissionDeniedError: the peer claims to be an agent that it may not serve.
    """
    if peer.role is Role.AGENTS:
        if claimed and claimed not in peer.agents:
            raise PermissionDeniedError(str(peer), f"act as agent {claimed!r}")
        return frozenset({claimed}) if claimed else peer.agents
    return frozenset({claimed}) if claimed else frozenset()


def _check_callers(
    callers: Set[str],
    peer: Identity,
    request: message_service_pb2.SendMessageRequest | message_service_pb2.StreamMessageRequest,
) -> None:
    acting = find_acting_agents(peer, request.submission.parent.agent)
    if acting and not acting <= callers:
        who = f"agent {', '.join(sorted(acting - callers))}"
        action = f"call agent {request.agent!r}: policy.callers.{request.agent} does not list it"
        raise PermissionDeniedError(who, action)


def _check_account(rules: _AccountRules, account: str, request: Message) -> None:
    rule = f"policy.accounts.{rules.name}"
    who = f"account {account!r}"
    if rules.methods is not None:
        method = type(request).__name__.removesuffix("Request")
        if method not in rules.methods:
            raise PermissionDeniedError(who, f"use {method}: {rule}.methods does not list it")
    read = _AGENT_OF.get(type(request))
    if read is not None and (agent := read(request)):
        _check_asked_agent(rules, account, agent)


def _check_asked_agent(rules: _AccountRules, account: str, agent: str) -> None:
    if rules.agents is not None and agent not in rules.agents:
        action = f"ask agent {agent!r}: policy.accounts.{rules.name}.agents does not list it"
        raise PermissionDeniedError(f"account {account!r}", action)


def _read_root_agent(request: Message) -> str:
    """Return the agent that a user asks; empty for a child, which its parent asks."""
    if not isinstance(request, _SUBMISSIONS):
        return ""
    if request.submission.HasField("parent"):
        return ""
    return request.agent


def _read_listed_agent(request: Message) -> str:
    return request.agent if isinstance(request, task_service_pb2.ListTasksRequest) else ""


_AGENT_OF: Final[Mapping[type[Message], Callable[[Message], str]]] = {
    **dict.fromkeys(_SUBMISSIONS, _read_root_agent),
    task_service_pb2.ListTasksRequest: _read_listed_agent,
}
