import time

import pytest

from trunkline.phrasing import (
    asks_for_introduction,
    asks_for_thing,
    find_topic,
    is_courtesy,
    strip_courtesy,
    strip_present,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("could you please tell me what 12 times 12 is, thanks", "what is 12 times 12"),
        ("Hi, I was wondering what 15% of 60 is", "what is 15% of 60"),
        ("hey, can you work out 81 divided by 9 for me?", "81 divided by 9"),
        ("do you know how much 15 pounds are in euros?", "how much are 15 pounds in euros?"),
        ("I need to know whether 97 is prime", "is 97 prime"),
        ("can you tell me what is 2+2", "what is 2+2"),
        ("Good morning! Could you convert 5 EUR to USD please?", "convert 5 EUR to USD"),
        ("what is 5!, thanks", "what is 5!"),
        ("please (2+3)*4", "(2+3)*4"),
        ("list all apps please", "list all apps"),
        ("whats 30 quid in euros", "what's 30 quid in euros"),
        ("I'd like to know how many ounces are in a pound", "how many ounces are in a pound"),
        ("tell me how many square metres are in an acre", "how many square metres are in an acre"),
        ("tell me how many people there are in 3 teams", "how many people are there in 3 teams"),
        ("do you know how many grams 3 ounces are", "how many grams are 3 ounces"),
        ("Good morning! Would you mind working out 4% of 2500 for me please?", "4% of 2500"),
        ("would you mind finding out whether 97 is prime", "is 97 prime"),
        ("I have two questions: what is 9 squared", "what is 9 squared"),
        ("Hi! I've got a couple of questions. What is 2+2?", "What is 2+2?"),
        ("sorry to bother you, but how much is 2+2?", "how much is 2+2?"),
        ("I'd be grateful if you could convert 50 USD to EUR for me", "convert 50 USD to EUR"),
        ("It would be great if you could tell me what 3+4 is.", "what is 3+4."),
        ("I'd really appreciate it if you would tell me what 3+4 is", "what is 3+4"),
        ("would you be so kind as to add 3 and 4", "add 3 and 4"),
        ("I was hoping you could tell me how much 5 EUR are in USD", "how much are 5 EUR in USD"),
        ("could you do me a favour and add 3 and 4", "add 3 and 4"),
        ("if you don't mind, what is 3+4?", "what is 3+4?"),
        ("If it isn't too much trouble, would you add 3 and 4", "add 3 and 4"),
        ("if it's not a problem, what is 3+4?", "what is 3+4?"),
        ("would you be able to tell me what 9 divided by 3 is?", "what is 9 divided by 3?"),
        ("could you possibly add 3 and 4", "add 3 and 4"),
        ("I was just wondering, what's 45 divided by 9?", "what's 45 divided by 9?"),
        ("good evening, might I ask what half of 3 is?", "what is half of 3?"),
        ("If you have a second: what's 13 squared?", "what's 13 squared?"),
        ("when you get a moment, add 3 and 4", "add 3 and 4"),
        (
            "tell me how many kroner I'd get for 75 euros",
            "how many kroner would I get for 75 euros",
        ),
        ("tell me how much 3 pounds would be in euros", "how much would 3 pounds be in euros"),
        ("do you know what the price will be", "what will the price be"),
        ("do you know what I will pay for 3", "what will I pay for 3"),
        ("could somebody please explain how much 5 EUR are in USD", "how much are 5 EUR in USD"),
        ("what 28 minus 9 is?", "what is 28 minus 9?"),
        ("what the square root of 196 is, thank you", "what is the square root of 196"),
        ("tell me how long the journey is", "how long is the journey"),
        ("do you know which day 1 May 2026 is", "which day is 1 May 2026"),
        (
            "Hello, tell me how much 3 pens at 2 EUR are? Thank you!",
            "how much are 3 pens at 2 EUR?",
        ),
        ("I am very sorry to bother you again, but what is 3+4?", "what is 3+4?"),
        ("sorry for asking once more: what is 3+4?", "what is 3+4?"),
        ("I hope I'm not disturbing you, what is 3+4?", "what is 3+4?"),
        ("Thank you for your quick help so far; could you also add 3 and 4", "add 3 and 4"),
        ("Thanks, that was kind of you. What is 3+4?", "What is 3+4?"),
        ("Dear assistant, what is 3+4? Many thanks.", "what is 3+4?"),
        ("how many seconds there are in a day?", "how many seconds are there in a day?"),
        ("tell me which exits there are on each floor", "which exits are there on each floor"),
        ("how much sugar there is in a cake, please", "how much sugar is there in a cake"),
        ("do you know what rooms there were", "what rooms were there"),
        (
            "how many days of leave there are for trainees",
            "how many days of leave are there for trainees",
        ),
        ("how many people think there are ghosts", "how many people think there are ghosts"),
        ("what is there", "what is there"),
        ("what time is it", "what time is it"),
    ],
)
def test_polite_words_are_removed_and_the_question_is_direct(text: str, expected: str) -> None:
    assert strip_courtesy(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what is the yen worth these days?", "what is the yen worth?"),
        ("what is the yen worth nowadays", "what is the yen worth"),
        ("12 times 12 right now", "12 times 12"),
        ("who is on call at the moment?", "who is on call?"),
        ("the price at present.", "the price."),
        ("100 USD in EUR as of now", "100 USD in EUR"),
        ("these days, what is the yen worth?", "what is the yen worth?"),
        ("right now how much is the yen, at present", "how much is the yen"),
        ("these days are long", "these days are long"),
        ("what time is it 3 hours from now", "what time is it 3 hours from now"),
        ("how many days is it until now", "how many days is it until now"),
        ("what do these days have in common", "what do these days have in common"),
        ("right now", "right now"),
        ("", ""),
    ],
)
def test_words_for_the_present_are_removed_behind_a_request(text: str, expected: str) -> None:
    assert strip_present(text) == expected


def test_a_text_of_polite_words_alone_is_known() -> None:
    assert is_courtesy("when you have a minute")
    assert is_courtesy("Hi there, please")
    assert not is_courtesy("when you have a minute, add 3 and 4")
    assert not is_courtesy("")


@pytest.mark.parametrize("text", ["all apps", "what is that", "2+2", "please", "is it ok", ""])
def test_a_direct_question_is_unchanged(text: str) -> None:
    assert strip_courtesy(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("hello", "Help!", "hi there", "what can you do?", "hello, who are you", "thank you!"),
        "so what exactly can you do for me",
        *("hey, what are you able to help me with?", "what kind of questions can I ask you?"),
    ],
)
def test_a_greeting_asks_for_an_introduction(text: str) -> None:
    assert asks_for_introduction(text)


@pytest.mark.parametrize("text", ["", "hello world", "help me with 2+2", "what is 2", "yes", "👋"])
def test_a_question_does_not_ask_for_an_introduction(text: str) -> None:
    assert not asks_for_introduction(text)


@pytest.mark.parametrize("word", ["please ", "thanks, ", "what ", "tell me what ", ", "])
def test_time_is_linear_in_the_length(word: str) -> None:
    began = time.process_time()
    strip_courtesy(word * 4_000)
    asks_for_introduction(word * 4_000)
    assert time.process_time() - began < 5


def test_a_topic_stands_behind_the_announcement_of_a_question() -> None:
    assert find_topic("Hi, I have a quick question about parking.") == "parking"
    assert find_topic("I have a question") == ""
    assert find_topic("what is the question about parking") == ""
    assert strip_courtesy("I have a question about 5 km in miles") == "5 km in miles"


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("say what half of 90 is", "what is half of 90"),
        ("show me how much 5 usd is in eur", "how much is 5 usd in eur"),
        ("say thanks for nothing", "say thanks for nothing"),
        ("take care of the dog", "take care of the dog"),
    ],
)
def test_a_verb_of_telling_is_polite_only_before_a_question(text: str, request_: str) -> None:
    assert strip_courtesy(text) == request_


def test_the_name_of_a_thing_behind_tell_me_asks_for_it() -> None:
    assert asks_for_thing("Would you be so kind as to tell me the extension of the help desk")
    assert not asks_for_thing("tell me what 3+4 is")
    assert not asks_for_thing("the extension of the help desk")


@pytest.mark.parametrize(
    "text",
    [
        *("Thank you, that's all!", "that's it for now, bye", "never mind"),
        *("Thank you very much, that was kind of you.", "That was really nice of you, thanks!"),
        *("Many thanks for your help so far!", "you have been very helpful", "thanks again"),
    ],
)
def test_the_end_of_a_conversation_asks_nothing(text: str) -> None:
    assert asks_for_introduction(text)
