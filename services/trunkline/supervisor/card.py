"""What the supervisor says about itself."""

from trunkline.v1 import agent_card_pb2

VERSION = "0.1.0"


def supervisor_card(name: str) -> agent_card_pb2.AgentCard:
    """Return the card of a supervisor of this name."""
    skill = agent_card_pb2.AgentSkill(
        id="route-and-combine",
        name="Route and combine",
        description=(
            "Chooses the agents that fit, gives each its part of the request, and puts their "
            "answers together."
        ),
        tags=["supervisor", "routing", "planning", "orchestration"],
        examples=["what is 15% of 240, and convert 36 USD to EUR"],
    )
    return agent_card_pb2.AgentCard(
        name=name,
        description="Answers by asking the other agents of the mesh, several at once if need be.",
        version=VERSION,
        default_input_modes=["*/*"],
        default_output_modes=["text/plain", "*/*"],
        skills=[skill],
    )
