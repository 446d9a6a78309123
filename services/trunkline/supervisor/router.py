"""Routes a request to an agent by the agents' cards. Pure."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from trunkline.names import NAME_PATTERN
from trunkline.phrasing import (
    Vocabulary,
    resolve_amounts,
    split_pair,
    strip_courtesy,
    strip_present,
    write_digits,
)
from trunkline.supervisor.description_scoring import (
    BY_DESCRIPTION_TAG,
    DescribedRequest,
    SkillDescription,
)
from trunkline.supervisor.tags import SearchableText, Tag, parse_tags, split_words
from trunkline.v1 import agent_card_pb2, event_pb2

TAG_POINTS = 1.0
SKILL_POINTS = 1.5
# Descriptions whose points differ by less fit alike. Worse ones are behind the best by the margin.
_SAME_POINTS = 0.1
# A smaller lead over the next agent is a tie.
MARGIN_POINTS = 0.5
# The lowest confidence for a route. Equal scores stay below it.
GOOD_CONFIDENCE = 0.5
# A skill with this tag matches only if the request begins with another of its tags.
COMMAND_TAG = "command"
# A skill with this tag takes questions that no agent's tags fit.
OPEN_QUESTIONS_TAG = "open questions"
# A skill with this tag counts for a request with a number that fits no other agent.
GENERAL_TAG = "general"
_MEANINGS = frozenset((COMMAND_TAG, OPEN_QUESTIONS_TAG, GENERAL_TAG, BY_DESCRIPTION_TAG))
# Text after this many characters is not searched.
SEARCHED_CHARS = 4000

_ADDRESS = re.compile(rf"(?<![\w@])@({NAME_PATTERN})(?![\w@-])[:,]?")
_DIGIT = re.compile(r"\d")
_ONE = re.compile(r"\bones?\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_FIRST_WORD = re.compile(r"\s*([^\W\d_]+)(?=:?\s|$)")
# What is asked for, before its material: "write a note for customers: the export takes …".
_HEAD = re.compile(r"[^:.!?\n]{1,200}(?=:\s)")
# The unit in which an answer is wanted: "what is the meal allowance in euros".
_FORM = re.compile(
    r"\s(?:in|into)(?!\s(?:per\s?cent|percentage)\b)(?:\s[^\W\d_]{1,20}){1,2}\W{0,4}$",
    re.IGNORECASE,
)
_ASKED_SIZE = re.compile(
    r"(?:what(?:'s|\s(?:is|are|was|were))|how\s[a-z]{1,20}\s(?:is|are|was|were))"
    r"\s(?:the|our|my|your|their)\s"
    # "up to how much can a manager approve"
    r"|(?:up\sto|from|above|over|below|under|until|within)\s(?:what|which|how)\s",
    re.IGNORECASE,
)
# Questions for a person, a place, a reason or a permission, and an amount that they mention.
_ASKED_CIRCUMSTANCE = re.compile(
    r"(?:(?:(?:at|by|for|from|of|on|since|till|to|until|with)\s)?(?:whom|whose)|who|where|why"
    r"|(?:by|since|till|until|from)\swhen|(?:can|may|must|should|do|am|are)\s(?:i|we)|what"
    r"\s(?:happens|(?:do|can|should|must)\s(?:i|we)\sdo))\b",
    re.IGNORECASE,
)
_MENTIONED_AMOUNT = re.compile(r"[$€£¥]?\s?\d[\d.,]*(?:\s?(?:[$€£¥%]|[^\W\d_]{1,20}))?")
# How often something is done: "three times a week".
_OCCASIONS = re.compile(
    r"\b\d+\stimes(?=\s*(?:[,;.?!]|$)|\s(?:an?|per|each|every|in\sa|within|already)\s)",
    re.IGNORECASE,
)
# A word that a command is about. After a conjunction, another request follows.
_OBJECT = re.compile(r":?\s+(?!(?:and|or|then|also)\b)\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Skill:
    name: str
    words: str
    tags: tuple[Tag, ...]
    is_command: bool
    description: SkillDescription | None = None
    """The words that a request is compared with, instead of the name and the tags."""


@dataclass(frozen=True, slots=True)
class _CardMatch:
    """The parts of one agent's card that a request mentions."""

    agent: str
    points: float
    reasons: tuple[str, ...]
    has_verb: bool
    is_command: bool


@dataclass(frozen=True, slots=True)
class _Command:
    """The word of a command in a request, or ""."""

    word: str = ""
    is_wrapped: bool = False
    """True if polite words stand before it."""


@dataclass(frozen=True, slots=True)
class RoutedText:
    """A text and its route."""

    decision: event_pb2.RouteDecided
    has_verb: bool
    """True if it has a tag that acts as the verb of the words after it."""
    is_explicit: bool
    """True if the request names the agent by a command."""
    is_wrapped: bool = False
    """True if polite words stand before the command."""

    @property
    def agent(self) -> str:
        """The chosen agent, or ""."""
        return self.decision.agent


class Router:
    """Routes by the cards it was created with. Immutable."""

    def __init__(self, cards: Sequence[agent_card_pb2.AgentCard], *, default: str = "") -> None:
        """`default` is the agent for requests that fit no agent or several: see `apply_default`."""
        self.cards = {card.name: card for card in sorted(cards, key=lambda card: card.name)}
        self._names = {name.lower(): name for name in self.cards}
        self._default = default
        self._skills = {
            name: [_parse_skill(skill, name) for skill in card.skills if not _is_general(skill)]
            for name, card in self.cards.items()
        }
        self._general_skills = {
            name: [_parse_skill(skill, name) for skill in card.skills if _is_general(skill)]
            for name, card in self.cards.items()
            if any(map(_is_general, card.skills))
        }
        self._command_phrases = {
            tag.phrase
            for skills in self._skills.values()
            for skill in skills
            if skill.is_command
            for tag in skill.tags
        }
        self._has_descriptions = any(
            skill.description for skills in self._skills.values() for skill in skills
        )
        # With several, it is open which of them fits, so that none does.
        open_agents = [
            name
            for name, card in self.cards.items()
            if any(OPEN_QUESTIONS_TAG in skill.tags for skill in card.skills)
        ]
        self._open_agent = open_agents[0] if len(open_agents) == 1 else ""

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(
            word
            for card in self.cards.values()
            for skill in card.skills
            for text in (*skill.tags, *skill.examples)
            for word in split_words(text)
        )

    @cached_property
    def _examples(self) -> dict[str, set[str]]:
        """The agents of each example."""
        agents: dict[str, set[str]] = {}
        for name, card in self.cards.items():
            for skill in card.skills:
                for example in skill.examples:
                    agents.setdefault(_read_pattern(example), set()).add(name)
        return agents

    def _apply_examples(self, decision: event_pb2.RouteDecided, text: str) -> None:
        """Route to the agent that has the text as an example, if it is the only one."""
        for phrasing in dict.fromkeys((text, write_digits(strip_courtesy(text)))):
            agents = self._examples.get(_read_pattern(phrasing), ())
            if len(agents) == 1:
                (decision.agent,) = agents
                decision.confidence = 1.0
                decision.reasons[:] = ["the request is one of its examples"]
                return

    def exclude(self, agents: Collection[str]) -> "Router":
        """Return a router without these agents."""
        if not any(agent in self.cards for agent in agents):
            return self
        return Router(
            [card for name, card in self.cards.items() if name not in agents],
            default="" if self._default in agents else self._default,
        )

    def route(self, text: str) -> RoutedText:
        """Score every agent and choose one, or none if no agent is clearly ahead.

        A text with numbers in words is scored with digits, too, because tags have signs for them:
        the higher score counts. A text that fits none may be an example of one agent, with other
        numbers. Else it is scored again as a direct question, with digits, then with the amount
        that it states in place of a reference to it, and if it has a number, with its misspelled
        words corrected.
        """
        routed = self._route(text, self._find_command(text))
        if routed.is_explicit:
            return routed
        if top_agents(routed.decision) and (open_question := self._route_without_form(text)):
            return open_question
        if routed.agent:
            return self._route_in_digits(text, routed)
        self._apply_examples(routed.decision, text[:SEARCHED_CHARS])
        if routed.agent:
            return routed
        for plain in self._list_phrasings(text[:SEARCHED_CHARS]):
            plainly_routed = self._route(plain, _Command())
            if plainly_routed.agent:
                return self._route_without_form(text) or plainly_routed
        return routed

    def _route_in_digits(self, text: str, routed: RoutedText) -> RoutedText:
        """Return the better of a route and that of the text with digits for numbers in words."""
        searched = text[:SEARCHED_CHARS]
        in_digits = write_digits(searched)
        if in_digits == searched:
            return routed
        other = self._route(in_digits, _Command())
        is_better = other.agent and other.decision.scores[0].score > routed.decision.scores[0].score
        return other if is_better else routed

    def _route_without_form(self, text: str) -> RoutedText | None:
        """Return no route for a question that fits agents only by a unit or an amount.

        "What is the meal allowance in euros" states no amount to convert, and "who approves a claim
        of 900 euros" asks for a person. None: it is no such question, or no agent takes open ones.
        """
        asked = strip_present(strip_courtesy(text[:SEARCHED_CHARS])) if self._open_agent else ""
        direct = write_digits(asked)
        if _ASKED_CIRCUMSTANCE.match(direct):
            without = self._route(_MENTIONED_AMOUNT.sub(" ", direct), _Command())
            return None if top_agents(without.decision) else without
        form = _FORM.search(direct)
        if form is None or not _ASKED_SIZE.match(direct) or _DIGIT.search(direct):
            return None
        routed = self._route(direct[: form.start()], _Command())
        return routed if not top_agents(routed.decision) else None

    def _list_phrasings(self, text: str) -> Iterator[str]:
        direct = strip_courtesy(text)
        plain = write_digits(direct)
        if len(_NUMBER.findall(plain)) == 1:
            # "Five times" counts, and multiplies nothing.
            plain = _OCCASIONS.sub(" ", plain)
        if plain != text:
            yield plain
        yield from resolve_amounts(plain)
        yield from split_pair(plain)
        # Without a number, a word that is near to a tag may be one of a document.
        # "A new one" has no number.
        has_number = _DIGIT.search(write_digits(_ONE.sub(" ", direct)))
        if has_number and (corrected := self._vocabulary.correct(plain)) != plain:
            yield corrected

    def _route(self, text: str, command: _Command) -> RoutedText:
        text = text[:SEARCHED_CHARS]
        request = SearchableText.from_text(text)
        head, openers = self._find_openers(text)
        others = request
        if head is not None:
            # For other agents, numbers and signs behind the colon are those of a text.
            others = replace(request, numbered=head.numbered, arithmetic=head.arithmetic)
        matches = [
            _match_card(name, skills, request if name in openers else others, command.word)
            for name, skills in self._skills.items()
        ]
        if self._has_descriptions:
            matches = self._add_descriptions(matches, text)
        matches = self._add_general(matches, request, command)
        scores = _rank_matches(matches)
        best = scores[0] if scores else event_pb2.AgentScore()
        decision = event_pb2.RouteDecided(
            confidence=best.confidence, reasons=best.reasons, scores=scores
        )
        best_match = {match.agent: match for match in matches}.get(best.agent)
        if best.confidence >= GOOD_CONFIDENCE:
            decision.agent = best.agent
        else:
            decision.reasons[:] = [_explain_no_route(top_agents(decision))]
        is_explicit = best_match is not None and best_match.is_command
        return RoutedText(
            decision,
            has_verb=best_match is not None and best_match.has_verb,
            is_explicit=is_explicit,
            is_wrapped=command.is_wrapped and is_explicit,
        )

    def _find_openers(self, text: str) -> tuple[SearchableText | None, Collection[str]]:
        """Return the words before a colon, and the agents with a tag that they begin with.

        None: there is no colon, or no agent has such a tag.
        """
        direct = strip_courtesy(text)
        found = _HEAD.match(direct)
        if found is None:
            return None, ()
        head = SearchableText.from_text(found[0])
        openers = [
            name
            for name, skills in self._skills.items()
            if any(tag.begins(head) for skill in skills for tag in skill.tags)
        ]
        return (head, openers) if openers else (None, ())

    def _add_descriptions(self, matches: Sequence[_CardMatch], text: str) -> list[_CardMatch]:
        """Return the matches with points for the skill of each agent whose description fits."""
        request = DescribedRequest.from_text(text[:SEARCHED_CHARS])
        scores = {
            name: max(
                (
                    (skill.description.score(request), skill.name)
                    for skill in skills
                    if skill.description
                ),
                default=(0.0, ""),
            )
            for name, skills in self._skills.items()
        }
        best = max(points for points, _ in scores.values())
        added = []
        for match in matches:
            points, skill = scores[match.agent]
            if points < best - _SAME_POINTS:
                points -= MARGIN_POINTS
            if points > 0:
                reasons = (*match.reasons, f"skill {skill!r}: its description")
                match = replace(match, points=match.points + points, reasons=reasons)
            added.append(match)
        return added

    def _add_general(
        self, matches: Sequence[_CardMatch], request: SearchableText, command: _Command
    ) -> list[_CardMatch]:
        """Return the matches with the general skills of agents that have no rival."""
        fitting = {match.agent for match in matches if match.points}
        added = []
        for match in matches:
            skills = self._general_skills.get(match.agent, ())
            if skills and request.has_number and fitting <= {match.agent}:
                general = _match_card(match.agent, skills, request, command.word)
                match = replace(
                    match,
                    points=match.points + general.points,
                    reasons=(*match.reasons, *general.reasons),
                    has_verb=match.has_verb or general.has_verb,
                )
            added.append(match)
        return added

    def _find_command(self, text: str) -> _Command:
        """Return the command that a text begins with, if need be after polite words."""
        word = _read_first_word(text)
        if f" {word} " in self._command_phrases:
            return _Command(word)
        direct = strip_courtesy(text[:SEARCHED_CHARS])
        word = _read_first_word(direct)
        # Someone who asks politely says what for: "please wait" is no command.
        if f" {word} " in self._command_phrases and _OBJECT.match(direct.lstrip(), len(word)):
            return _Command(word, is_wrapped=True)
        return _Command()

    @property
    def has_default(self) -> bool:
        """True if there is a default agent."""
        return self._default in self.cards

    def apply_open_questions(self, decision: event_pb2.RouteDecided) -> None:
        """Route to the agent that takes any question, if there is one and no tag was found."""
        if not decision.agent and self._open_agent and not top_agents(decision):
            decision.agent = self._open_agent
            decision.reasons.append("it takes questions that no other agent fits")

    def apply_default(self, decision: event_pb2.RouteDecided) -> None:
        """Route to the default agent, if there is one and the decision has no agent."""
        if not decision.agent and self._default in self.cards:
            decision.agent = self._default
            decision.reasons.append("this is the default agent")

    def find_addresses(self, text: str) -> list[re.Match[str]]:
        """Return the matches of @NAME in the text for known agents."""
        return [match for match in _ADDRESS.finditer(text) if self.find_name(match[1])]

    def find_unknown_address(self, text: str) -> str:
        """Return the name of the unknown agent that the text begins with as @NAME, or ""."""
        match = _ADDRESS.match(text.lstrip())
        return match[1] if match and not self.find_name(match[1]) else ""

    def find_name(self, text: str) -> str:
        """Return the name of an agent that is written in upper or lower case, or ""."""
        return text if text in self.cards else self._names.get(text.lower(), "")

    def has_opener(self, agent: str, word: str) -> bool:
        """Return whether a request for the agent may begin with a word: a tag, or a tool's verb."""
        return any(
            any(tag.phrase == f" {word.casefold()} " for tag in skill.tags)
            or (skill.description is not None and skill.description.begins_with(word))
            for skill in self._skills.get(agent, ())
        )


def address_decision(agent: str) -> event_pb2.RouteDecided:
    """Return the decision for a text that addresses its agent as @NAME."""
    reasons = [f"the request names @{agent}"]
    score = event_pb2.AgentScore(agent=agent, confidence=1.0, reasons=reasons)
    return event_pb2.RouteDecided(agent=agent, confidence=1.0, reasons=reasons, scores=[score])


def top_agents(decision: event_pb2.RouteDecided) -> list[str]:
    """Return the agents within MARGIN_POINTS of the top score; [] if nothing matched."""
    top = decision.scores[0].score if decision.scores else 0.0
    return [
        score.agent
        for score in decision.scores
        if score.score and top - score.score <= MARGIN_POINTS
    ]


def _read_pattern(text: str) -> str:
    """Return a text in lower case with a sign for each number, without the last punctuation."""
    return " ".join(_NUMBER.sub("#", text.casefold()).rstrip(" .!?").split())


def _read_first_word(text: str) -> str:
    word = _FIRST_WORD.match(text)
    return word[1].casefold() if word else ""


def _is_general(skill: agent_card_pb2.AgentSkill) -> bool:
    return GENERAL_TAG in skill.tags


def _parse_skill(skill: agent_card_pb2.AgentSkill, agent: str) -> _Skill:
    is_command = COMMAND_TAG in skill.tags
    name = skill.name or skill.id
    if BY_DESCRIPTION_TAG in skill.tags:
        description = SkillDescription.from_skill(skill, agent)
        return _Skill(name, words="", tags=(), is_command=False, description=description)
    return _Skill(
        name=name,
        words=f" {' '.join(split_words(name))} ",
        tags=parse_tags(dict.fromkeys(tag for tag in skill.tags if tag not in _MEANINGS)),
        is_command=is_command,
    )


def _match_card(
    agent: str, skills: Sequence[_Skill], request: SearchableText, first_word: str
) -> _CardMatch:
    tags: dict[str, Tag] = {}
    reasons: list[str] = []
    is_command = False
    skill_count = 0
    for skill in skills:
        if skill.is_command:
            matching_tags = [tag for tag in skill.tags if tag.phrase == f" {first_word} "]
            is_command = is_command or bool(matching_tags)
        else:
            matching_tags = [tag for tag in skill.tags if tag.is_in(request)]
        is_named = not skill.is_command and bool(skill.words.strip())
        if not matching_tags and not (is_named and skill.words in request.phrase):
            continue
        skill_count += 1
        tags.update((tag.text.casefold(), tag) for tag in matching_tags)
        names = ", ".join(tag.text for tag in matching_tags) or "its name"
        reasons.append(f"skill {skill.name!r}: {names}")
    return _CardMatch(
        agent,
        points=len(tags) * TAG_POINTS + skill_count * SKILL_POINTS,
        reasons=tuple(reasons),
        has_verb=any(tag.is_verb_in(request) for tag in tags.values()),
        is_command=is_command,
    )


def _rank_matches(matches: Sequence[_CardMatch]) -> list[event_pb2.AgentScore]:
    """Return the scores, best first: by command, then points, then name."""
    ranked = sorted(matches, key=lambda match: (not match.is_command, -match.points, match.agent))
    is_commanded = sum(match.is_command for match in ranked) == 1
    # Two zeros are added so that a single agent has a rival too.
    best, second = sorted((0.0, 0.0, *(match.points for match in ranked)), reverse=True)[:2]
    scores = []
    for match in ranked:
        if is_commanded:
            confidence = float(match.is_command)
        else:
            rival = second if match.points == best else best
            confidence = round(match.points / (match.points + rival + MARGIN_POINTS), 2)
        scores.append(
            event_pb2.AgentScore(
                agent=match.agent, score=match.points, confidence=confidence, reasons=match.reasons
            )
        )
    return scores


def _explain_no_route(level: Sequence[str]) -> str:
    if len(level) > 1:
        return f"{' and '.join(level)} fit equally well"
    return "no agent's skills occur in it"
