"""Removes polite wrapping from a request, and recognises a request for an introduction.

"Could you please tell me what 12 times 12 is, thanks" asks "what is 12 times 12". An apostrophe
that the first word lacks, as in "whats", is put back.
"""

from collections.abc import Collection, Iterator, Sequence

from trunkline.phrasing.direct_questions import (
    WORD,
    ask_directly,
    is_indirectly_asked,
    split_spans,
)

_OUTER_MARKS = " \t\r\n,;:"
_LEADING_MARKS = f"{_OUTER_MARKS}!.?"

_GREETINGS = (
    "hi|hello|hey|hiya|howdy|greetings|good morning|good afternoon|good evening|good day|"
    "thanks|thanks a lot|thank you|thank you very much|thank you so much|thx|cheers|many thanks|"
    "bye|goodbye|good bye|see you|good night"
)
_ADDRESSEES = (
    "there|everyone|everybody|all|again|team|you|trunkline|assistant|dear assistant|dear team|"
    "dear all"
)
_FILLERS = (
    "please|kindly|ok|okay|so|well|now|and|then|also|just|maybe|perhaps|actually|sorry|excuse me|"
    "again|once more|once again|one more time|"
    "but|um|uh|hmm|oh|alright|pls|plz|"
    "if i may ask|pardon me|great|perfect|cool|nice|possibly|simply|quickly|real quick|"
    "by the way|next|first|firstly|finally|lastly|quick question|quick one|a quick question|"
    "question|one question|"
    "one more thing|one more question|i have a question|i have a quick question|"
    "thanks in advance|thank you in advance|many thanks in advance|"
    "dear assistant|dear team|dear all|i have a request|i have a quick request|a quick request|"
    "i don't know how this works|i'm new here|i am new here|this is my first time here"
)
_REQUESTS = (
    "can u|could u|would u|"
    "can you|could you|would you|will you|would you mind|do you mind|"
    "would you be able to|will you be able to|are you able to|"
    "are you able to help me|would it be possible to|is it possible to|i want you to|"
    "i need you to|i'd like you to|i would like you to|help me|help me to|help me with|"
    "i'd like to|i would like to|i want to|i need to|if you could|if you can|whether you could|"
    "whether you can|i'd love to|can i get|can i have|could i get|could i have|"
    "may i have|may i get|i'd like|i would like|i need|let me have|"
    "if you would|i hope you can|i was hoping you could|"
    "i was hoping you can|i am hoping you can|i'm hoping you can|be so kind as to|"
    "be so kind and|be kind enough to|"
    "do me a favour|do me a favor|if you don't mind|if possible"
)
# "may I ask", "could I just ask you"; "if you have a second", "when you get a moment"
_PERMISSIONS = "|".join(
    f"{may} i {just}ask{whom}"
    for may in ("can", "could", "may", "might")
    for just in ("", "just ", "quickly ")
    for whom in ("", " you")
)
_OCCASIONS = "|".join(
    f"{when} you {have} a {moment}"
    for when in ("if", "when", "whenever")
    for have in ("have", "have got", "get")
    for moment in ("second", "moment", "minute", "sec")
)
# "I have two questions", "three quick ones"
_ANNOUNCEMENTS = "|".join(
    f"{i_have}{some} {kind}"
    for i_have in ("", "i have ", "i have got ", "i've got ", "i've ")
    for some in ("two", "three", "four", "2", "3", "4", "a few", "some", "several", "a couple of")
    for kind in (
        "questions",
        "quick questions",
        "quick ones",
        "short ones",
        "things",
        "quick things",
    )
)
# "I have a question about parking": the topic is behind it.
_TOPICS = "|".join(
    f"{opening}{question} {about}"
    for opening in ("", "i have ", "i have got ", "i've got ", "i've ", "i had ", "this is ")
    for question in (
        *(f"{a} {kind}question" for a in ("a", "one", "another") for kind in ("", "quick ")),
        *("question", "questions", "some questions", "a few questions", "two questions"),
    )
    for about in ("about", "on", "regarding", "concerning")
)
# "could somebody please", "if anyone can"
_SOMEBODY = "|".join(
    phrase
    for person in ("someone", "somebody", "anyone", "anybody")
    for can in ("can", "could", "would")
    for phrase in (f"{can} {person}", f"if {person} {can}")
)
# "I am very sorry to bother you again", "sorry for asking", "I hope I'm not disturbing you"
_APOLOGIES = "|".join(
    f"{opening} {trouble}{whom}"
    for openings, troubles in (
        (
            tuple(
                f"{i_am}{extent}sorry"
                for i_am in ("", "i'm ", "i am ")
                for extent in ("", "so ", "very ", "really ")
            ),
            (
                *("to bother", "to trouble", "to disturb", "to interrupt", "to ask"),
                *("for bothering", "for troubling", "for disturbing", "for interrupting"),
                *("for asking", "for the trouble", "for the interruption", "for the question"),
                *("for the questions", "for all the questions", "for another question"),
            ),
        ),
        (
            tuple(f"i hope {i_am} not" for i_am in ("i'm", "i am", "this is", "it is")),
            ("bothering", "disturbing", "interrupting", "troubling", "a bother", "a bad time"),
        ),
    )
    for opening in openings
    for trouble in troubles
    for whom in ("", " you")
)
# Behind thanks: "for your quick help so far", "for answering"
_REASONS = "|".join(
    (
        *(
            f"for {your} {quality}{help_}"
            for your in ("your", "the", "all your", "all the")
            for quality in ("", "quick ", "kind ", "great ", "good ", "fast ", "last ")
            for help_ in (
                "help",
                "answer",
                "answers",
                "reply",
                "response",
                "support",
                "information",
            )
        ),
        *("for your time", "for your patience", "for helping", "for helping me", "for answering"),
        *("for that", "for this", "for everything", "for explaining", "for letting me know"),
        *("so far", "until now", "up to now", "already", "again", "once more", "once again"),
    )
)
# "that was very kind of you", "you have been really helpful"
_PRAISES = "|".join(
    f"{that}{extent}{kind}{whom}"
    for that, recipients in (
        *((that, ("", " of you")) for that in ("that was ", "that is ", "that's ", "this was ")),
        *((that, ("",)) for that in ("you were ", "you are ", "you're ", "you have been ")),
        ("you've been ", ("",)),
        # "Kind regards" is no praise.
        ("", (" of you",)),
    )
    for extent in ("", "very ", "really ", "so ", "most ", "extremely ", "a really ", "a great ")
    for kind in ("kind", "nice", "helpful", "good", "great", "lovely", "friendly", "useful", "help")
    for whom in recipients
)
# "if it isn't too much trouble", "if that's ok": before a request or behind it.
_PROVISOS = "|".join(
    f"if {it} {quality}"
    for its, qualities in (
        (
            ("it's", "it is", "that's", "that is"),
            (
                *("ok", "okay", "alright", "possible", "convenient", "no trouble", "no problem"),
                *("no bother", "not too much trouble", "not too much to ask", "not a problem"),
            ),
        ),
        (
            ("it isn't", "that isn't"),
            ("too much trouble", "too much to ask", "a problem", "a bother", "any trouble"),
        ),
    )
    for it in its
    for quality in qualities
)
# "I'd be very grateful", "it would be great", "I'd really appreciate it": before "if you could".
_WISHES = "|".join(
    f"{one} {wish}"
    for one, wishes in (
        (
            "i",
            (
                *(f"be {extent}grateful" for extent in ("", "very ", "so ", "really ")),
                *(f"be {extent}thankful" for extent in ("", "very ", "so ", "really ")),
                *("be glad", "be happy", "appreciate it", "really appreciate it"),
            ),
        ),
        (
            "it",
            tuple(
                f"be {extent}{quality}"
                for extent in ("", "very ", "so ", "really ")
                for quality in ("great", "nice", "lovely", "kind", "wonderful", "helpful")
            ),
        ),
    )
    for one in (f"{one}'d", f"{one} would")
    for wish in wishes
)
# The end of a conversation: "thank you, that's all".
_FAREWELLS = "|".join(
    f"{that}{ending}"
    for that in ("that's ", "that is ", "that was ", "that'll be ", "that will be ", "")
    for ending in ("all", "it", "everything", "all for now", "all for today", "it for now")
    if that or " for " in ending
) + (
    "|nothing else|no more questions|i'm done|i am done|we're done|we are done|nothing more|"
    "have a nice day|have a good day|have a great day|have a nice evening|have a good weekend|"
    "take care|see you later|talk to you later|until next time|good work|well done|"
    "you've been helpful|that helps|that helped|that was helpful|much appreciated|appreciate it|"
    "no thanks|no thank you|never mind|nevermind"
)
# Before a question word, they are as "tell me"; "say cheese" asks to say it.
_SAYING = "say|show|give|state|show me|give me|answer|calculate|compute"
# After these, a question is in the order of a statement.
_INDIRECT = (
    "tell me|tell us|telling me|let me know|know|to know|i was wondering|i am wondering|"
    "i'm wondering|i wonder|wondering|i was just wondering|i am just wondering|just wondering|"
    "i'm just wondering|do you know|do you happen to know|does anyone know|"
    "does anybody know|any idea|i wanted to know|i'm curious|i am curious|i wanted to ask|"
    "i want to ask|check|confirm|explain|explain to me|work out|figure out|find out|"
    "working out|figuring out|finding out|checking|confirming|explaining|letting me know"
)
_TAILS = (
    "pls|plz|"
    "please|for me|for us|if you can|if you could|if possible|if you don't mind|would you|"
    "could you|can you|will you|by the way|thanks|thank you|thx|cheers|many thanks|thanks a lot|"
    "thanks so much|thanks in advance|thank you so much|thank you very much|thank you in advance"
)
# Behind a question, they say that its answer is wanted as of now.
_PRESENT = (
    "these days|nowadays|now|right now|just now|as of now|currently|presently|at the moment|"
    "at this moment|at this time|at present|at the present time|for the time being|as we speak"
)
# Before "now", they make a span of time: "3 hours from now".
_SPAN_WORDS = frozenset(
    ("from", "until", "till", "to", "since", "before", "after", "by", "than", "of", "and", "is")
)
_INTRODUCTIONS = (
    "how are you|how are you doing|how are you today|how is it going|how's it going|"
    "nice to meet you|what's your name|what is your name|"
    "are you a bot|what else can you do|what else do you do"
    "|what else|"
    "help|help me|what do you do|what can i ask|"
    "what can i ask you|what should i ask|who are you|what are you|"
    "how does this work|how do you work|how do i use this|how do i use you|how can you help|"
    "how can you help me|what are your skills|"
    "what are your capabilities|what are your features|what can i do here|what can i do with you|"
    "what do you know|introduce yourself|about yourself|"
    "show me what you can do|what you can do|how do i start|how do i get started|get started|"
    "what are you capable of|what are you good at|what are you good for|what is possible here|"
    "your capabilities|more about yourself|which agents are there|what agents are there|"
    "which agents do you have|list the agents|list agents|show the agents|"
    "an example|examples|some examples|give me an example|give an example|give me some examples|"
    "show me an example|show me some examples|give me examples|show me examples"
)
# "what can you do", "what kind of things are you able to help me with"
_ABILITIES = "|".join(
    f"{what} {able} {task}"
    for what in ("what", "what things", "what sort of things", "what kind of things")
    for able in ("can you", "could you", "are you able to")
    for task in (
        *("do", "do for me", "help with", "help me with", "assist with", "assist me with"),
        *("answer", "offer", "tell me"),
    )
) + "".join(
    f"|{what} do you {know}"
    for what in (
        "what things",
        "what sort of things",
        "what kind of things",
        "which topics",
        "what",
    )
    for know in ("know about", "do", "know", "answer")
)
_QUESTIONS = "|".join(
    f"{what} questions {asked}"
    for what in ("what", "which", "what sort of", "what kind of", "what kinds of", "what types of")
    for asked in (
        *(
            "can i ask",
            "can i ask you",
            "could i ask",
            "could i ask you",
            "may i ask",
            "do you know",
        ),
        *("can you answer", "could you answer", "do you answer", "do you understand"),
    )
)
# Question words that people write without their apostrophe.
_MERGED = {
    **{f"{word}s": f"{word}'s" for word in ("what", "how", "where", "when", "that")},
    "whos": "who's",
    "wats": "what's",
    "wat": "what",
}


def _parse_phrases(*alternatives: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(phrase.split()) for text in alternatives for phrase in text.split("|"))


_SALUTATIONS = _parse_phrases(_GREETINGS)
_FAREWELL_PHRASES = _parse_phrases(_FAREWELLS, _PRAISES)
_SAYING_OPENINGS = _parse_phrases(_SAYING)
_BEHIND_SALUTATIONS = _parse_phrases(_ADDRESSEES, _REASONS)
_INDIRECT_OPENINGS = _parse_phrases(_INDIRECT, _PERMISSIONS)
_QUESTION_OPENINGS = _parse_phrases("what|what's|how|which|whether|who|when|where")
# Behind these, the name of a thing asks for it.
_TELLING = _parse_phrases("tell me|tell us|telling me|let me know|show me|give me|letting me know")
_DETERMINERS = tuple([word] for word in ("the", "our", "my", "your"))
_TOPIC_OPENINGS = _parse_phrases(_TOPICS)
_OPENINGS = (
    _parse_phrases(_FILLERS, _ANNOUNCEMENTS, _REQUESTS, _WISHES, _SOMEBODY, _PROVISOS, _OCCASIONS)
    | _parse_phrases(_APOLOGIES)
    | frozenset(phrase for phrase in _parse_phrases(_PRAISES) if phrase[-2:] == ("of", "you"))
    | _TOPIC_OPENINGS
    | _SALUTATIONS
    | _INDIRECT_OPENINGS
)
# Before a request, "take care" and "that's all" are a part of it.
_OPENINGS_OF_COURTESY = _OPENINGS | _FAREWELL_PHRASES
_CLOSINGS = _parse_phrases(_TAILS, _PROVISOS)
_PRESENT_PHRASES = _parse_phrases(_PRESENT)
_LONGEST_PRESENT = max(map(len, _PRESENT_PHRASES))
_INTRODUCTION_REQUESTS = _parse_phrases(_INTRODUCTIONS, _ABILITIES, _QUESTIONS)
_LONGEST_INTRODUCTION = max(map(len, _INTRODUCTION_REQUESTS))
_INTRODUCTIONS_LIMIT = 3
# The time to find one grows with the square of the polite words before it.
_MAX_INTRODUCTION_CHARS = 1000
# Words that change nothing of what such a request asks.
_EMPHASIS = frozenset(("exactly", "actually", "really", "precisely", "else", "all", "so"))
_BENEFICIARIES = (("for", "me"), ("for", "us"), ("here",))
_LONGEST = max(map(len, (*_OPENINGS_OF_COURTESY, *_CLOSINGS)))


def strip_courtesy(text: str) -> str:
    """Return the request without polite words around it, as a direct question.

    A text of nothing but polite words is returned unchanged.
    """
    spans, words = split_spans(text)
    openings = list(_find_openings(words))
    first = openings[-1][1] if openings else 0
    last = first + _length_without_closing(words[first:])
    if first == last:
        return text
    start = spans[first - 1][1] if first else 0
    end = spans[last][0] if last < len(words) else len(text)
    request = text[start:end].rstrip(_OUTER_MARKS)
    request = request.lstrip(_LEADING_MARKS) if first else request.lstrip()
    request = _separate_verb(request)
    is_indirect = any(
        tuple(words[begin:stop]) in _INDIRECT_OPENINGS | _SAYING_OPENINGS
        for begin, stop in openings
    )
    # The second of two: "whether 221 is prime, and whether 225 is a square".
    is_indirect = is_indirect or words[first] == "whether" or is_indirectly_asked(words[first:last])
    return ask_directly(request) if is_indirect else request


def strip_present(text: str) -> str:
    """Return a request without words for the present around it: "nowadays", "at the moment".

    A request such as "3 hours from now" is returned unchanged.
    """
    spans, words = split_spans(text)
    first = _longest_phrase(words[:_LONGEST_PRESENT], _PRESENT_PHRASES)
    if first and tuple(words[first : first + 1]) in _QUESTION_OPENINGS:
        return strip_present(text[spans[first][0] :])
    for length in range(min(len(words), _LONGEST_PRESENT), 0, -1):
        first = len(words) - length
        if tuple(words[first:]) in _PRESENT_PHRASES:
            is_part = not first or words[first - 1] in _SPAN_WORDS
            return text if is_part else text[: spans[first - 1][1]] + text[spans[-1][1] :]
    return text


def asks_for_thing(text: str) -> bool:
    """Return whether a text asks politely for what it names: "tell me the opening hours"."""
    _, words = split_spans(text)
    openings = list(_find_openings(words))
    last = openings[-1] if openings else (0, 0)
    return tuple(words[slice(*last)]) in _TELLING and words[last[1] : last[1] + 1] in _DETERMINERS


def is_courtesy(text: str) -> bool:
    """Return whether a text has polite words and no others."""
    _, words = split_spans(text)
    openings = list(_find_openings(words, _OPENINGS_OF_COURTESY))
    first = openings[-1][1] if openings else 0
    return bool(words) and first + _length_without_closing(words[first:]) == first


def find_topic(text: str) -> str:
    """Return what a text says that it has a question about, or "": "parking"."""
    _, words = split_spans(text)
    openings = [tuple(words[begin:stop]) for begin, stop in _find_openings(words)]
    is_topic = any(opening in _TOPIC_OPENINGS for opening in openings) and not is_courtesy(text)
    return strip_courtesy(text).strip(_LEADING_MARKS) if is_topic else ""


def asks_for_introduction(text: str) -> bool:
    """Return whether a text only greets, or asks what can be asked here; False for a long text."""
    if len(text) > _MAX_INTRODUCTION_CHARS:
        return False
    _, words = split_spans(text)
    openings = list(_find_openings(words, _OPENINGS_OF_COURTESY))
    last = _length_without_closing(words)
    # A phrase may begin with polite words itself: "help me".
    starts = (0, *(begin for begin, _ in openings), *(stop for _, stop in openings))
    if any(_introduces(words[start:end]) for start in starts for end in (last, len(words))):
        return True
    greetings = _SALUTATIONS | _FAREWELL_PHRASES
    has_greeting = any(tuple(words[begin:stop]) in greetings for begin, stop in openings)
    first = openings[-1][1] if openings else 0
    return has_greeting and last <= first


def _introduces(words: Sequence[str]) -> bool:
    """Return whether words are one request for an introduction, or some of them joined by "and"."""
    if len(words) > _INTRODUCTIONS_LIMIT * _LONGEST_INTRODUCTION:
        return False
    phrases: list[tuple[str, ...]] = [()]
    for word in words:
        if word == "and":
            phrases.append(())
        else:
            phrases[-1] += (word,)
    return all(
        phrase in _INTRODUCTION_REQUESTS or _shorten_phrase(phrase) in _INTRODUCTION_REQUESTS
        for phrase in phrases
    )


def _shorten_phrase(phrase: tuple[str, ...]) -> tuple[str, ...]:
    """Return a phrase without emphasis, and without the person for whom it asks."""
    short = tuple(word for word in phrase if word not in _EMPHASIS)
    for ending in _BENEFICIARIES:
        if short[-len(ending) :] == ending:
            return short[: -len(ending)]
    return short


def _find_openings(
    words: Sequence[str], phrases: Collection[tuple[str, ...]] = _OPENINGS
) -> Iterator[tuple[int, int]]:
    """Yield the places of the polite phrases that a request begins with."""
    begin = 0
    while length := _length_of_opening(words[begin : begin + _LONGEST], phrases):
        yield begin, begin + length
        is_greeting = tuple(words[begin : begin + length]) in _SALUTATIONS
        begin += length
        while is_greeting and (
            length := _longest_phrase(words[begin : begin + _LONGEST], _BEHIND_SALUTATIONS)
        ):
            yield begin, begin + length
            begin += length


def _length_of_opening(words: Sequence[str], phrases: Collection[tuple[str, ...]]) -> int:
    length = _longest_phrase(words, phrases)
    if length:
        return length
    length = _longest_phrase(words, _SAYING_OPENINGS)
    return length if tuple(words[length : length + 1]) in _QUESTION_OPENINGS else 0


def _longest_phrase(words: Sequence[str], phrases: Collection[tuple[str, ...]]) -> int:
    """Return the length of the longest phrase that the words begin with, or 0."""
    lengths = range(len(words), 0, -1)
    return next((length for length in lengths if tuple(words[:length]) in phrases), 0)


def _length_without_closing(words: Sequence[str]) -> int:
    """Return the number of words before the polite phrases at the end."""
    last = len(words)
    while True:
        lengths = range(min(last, _LONGEST), 0, -1)
        length = next((n for n in lengths if tuple(words[last - n : last]) in _CLOSINGS), 0)
        if not length:
            return last
        last -= length


def _separate_verb(request: str) -> str:
    """Return the request with the apostrophe that its first word lacks: "whats" is "what's"."""
    first = WORD.match(request)
    mended = _MERGED.get(first[0].lower()) if first else None
    return request if first is None or mended is None else f"{mended}{request[first.end() :]}"
