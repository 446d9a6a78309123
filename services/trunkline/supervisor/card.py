"""What a supervisor says about itself."""

from trunkline.settings import SupervisorSettings
from trunkline.v1 import agent_card_pb2

VERSION = "0.1.0"
_EXAMPLE = "what is 15% of 240, and convert 36 USD to EUR"


def supervisor_card(name: str, options: SupervisorSettings) -> agent_card_pb2.AgentCard:
    """Return the card of a supervisor of this name."""
    whom = f"the agents {', '.join(options.agents)}" if options.agents else "the other agents"
    skill = agent_card_pb2.AgentSkill(
        id="route-and-combine",
        name="Route and combine",
        description=(
            "Chooses the agents that fit, gives each its part of the request, and puts their "
            "answers together."
        ),
        tags=options.tags or ("supervisor", "routing", "planning", "orchestration"),
        examples=options.examples or (() if options.agents else (_EXAMPLE,)),
    )
    default = f"Answers by asking {whom} of the mesh, several at once if need be."
    return agent_card_pb2.AgentCard(
        name=name,
        description=options.description or default,
        version=VERSION,
        default_input_modes=["*/*"],
        default_output_modes=["text/plain", "*/*"],
        skills=[skill],
    )
