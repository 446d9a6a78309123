"""Separates the tags of a skill that other agents' questions have, too.

"In total" and "how much is that" are said of sums, and as well of what a shop or a ticket system
holds. Such tags must not compete with those of an agent for just that.
"""

from trunkline import AgentSkill

GENERAL_TAG = "general"
"""The supervisor counts a skill with this tag for requests with a number that fit no other
agent."""
_NUMBER = "#"


def split_skill(skill: AgentSkill) -> tuple[AgentSkill, AgentSkill]:
    """Return the skill with its tags that have a number, and a general one with the others.

    "# coffees at #" is a sum whichever agents there are. "In total" alone is none.
    """
    numbered = [tag for tag in skill.tags if _NUMBER in tag]
    others = [tag for tag in skill.tags if _NUMBER not in tag]
    return (
        AgentSkill(
            id=skill.id,
            name=skill.name,
            description=skill.description,
            tags=numbered,
            examples=skill.examples,
        ),
        AgentSkill(
            id=f"{skill.id}-words",
            name=f"{skill.name} in words",
            description=skill.description,
            tags=[*others, GENERAL_TAG],
        ),
    )
