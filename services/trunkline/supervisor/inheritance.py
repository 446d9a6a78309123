"""The skills that a supervisor's card has from the agents behind it. Pure.

The id of an inherited skill is `AGENT:ID`, with the agent that has it as its own. A supervisor over
supervisors passes inherited skills on with their ids, so each names its agent at any depth.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from trunkline.v1 import agent_card_pb2

OWN_SKILL_ID: Final = "route-and-combine"
"""The id of the skill that a supervisor has itself."""
DEFAULT_TAGS: Final = ("supervisor", "routing", "planning", "orchestration")
"""The tags of a supervisor whose settings have none. They say nothing about what it can answer."""
MAX_INHERITED: Final = 100
"""The number of skills that a card may inherit, because each agent on the mesh gets each card."""


def inherit_skills(
    name: str, cards: Iterable[agent_card_pb2.AgentCard], available: Collection[str]
) -> list[agent_card_pb2.AgentSkill]:
    """Return the skills that the supervisor `name` inherits from the cards of its agents.

    Skills of agents that are not `available` are left out: two supervisors that may ask each other
    would keep them forever. So are its own, which come back in such a circle.
    """
    skills: dict[str, agent_card_pb2.AgentSkill] = {}
    for card in cards:
        for skill in card.skills:
            if skill.id == OWN_SKILL_ID and tuple(skill.tags) == DEFAULT_TAGS:
                continue
            owner = skill_owner(skill) or card.name
            inherited_id = skill.id if skill_owner(skill) else f"{card.name}:{skill.id}"
            if owner == name or owner not in available or inherited_id in skills:
                continue
            inherited = agent_card_pb2.AgentSkill()
            inherited.CopyFrom(skill)
            inherited.id = inherited_id
            skills[inherited_id] = inherited
            if len(skills) == MAX_INHERITED:
                return list(skills.values())
    return list(skills.values())


def drop_inherited(
    cards: Iterable[agent_card_pb2.AgentCard],
) -> Iterator[agent_card_pb2.AgentCard]:
    """Yield cards without the skills that they inherited from an agent with a card of its own.

    A supervisor asks that agent itself, so that it does not tie with supervisors over it.
    """
    by_name: Mapping[str, agent_card_pb2.AgentCard] = {card.name: card for card in cards}
    for card in by_name.values():
        skills = [
            skill
            for skill in card.skills
            if (skill_owner(skill) or card.name) == card.name or skill_owner(skill) not in by_name
        ]
        if len(skills) == len(card.skills):
            yield card
            continue
        reduced = agent_card_pb2.AgentCard()
        reduced.CopyFrom(card)
        del reduced.skills[:]
        reduced.skills.extend(skills)
        yield reduced


def skill_owner(skill: agent_card_pb2.AgentSkill) -> str:
    """Return the agent from which a skill was inherited, or "" for an own skill."""
    owner, colon, _ = skill.id.partition(":")
    return owner if colon else ""
