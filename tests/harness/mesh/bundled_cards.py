"""The cards of the bundled agents, without the agents themselves."""

from trunkline.agents.plugins import ReasoningAgentSpec, load_plugins
from trunkline.v1 import agent_card_pb2


def load_spec(name: str) -> ReasoningAgentSpec:
    """Return the spec of a bundled reasoning agent."""
    spec = load_plugins()[name].agent
    assert isinstance(spec, ReasoningAgentSpec)
    return spec


def shipped_cards() -> list[agent_card_pb2.AgentCard]:
    """Return the cards that a mesh with all bundled agents routes by."""
    agents = [plugin.agent for plugin in load_plugins().values()]
    return [
        agent.build_card() if isinstance(agent, ReasoningAgentSpec) else agent.card
        for agent in agents
    ]
