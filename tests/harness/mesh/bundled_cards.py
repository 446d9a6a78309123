"""The cards of the agents that ship, without anything that could answer."""

from trunkline.agents.plugins import ReasoningAgentSpec, load_plugins
from trunkline.v1 import agent_card_pb2


def load_spec(name: str) -> ReasoningAgentSpec:
    """Return what a reasoning agent that ships says of itself."""
    spec = load_plugins()[name].agent
    assert isinstance(spec, ReasoningAgentSpec)
    return spec


def shipped_cards() -> list[agent_card_pb2.AgentCard]:
    """Return what the mesh routes by when all of them are on it."""
    agents = [plugin.agent for plugin in load_plugins().values()]
    return [one.build_card() if isinstance(one, ReasoningAgentSpec) else one.card for one in agents]
