"""The skills of the math agent for times of day and the calendar. Their tags decide routing.

Documents have times and weekdays too, so a tag is a part of a question, and no time alone.
"""

from trunkline import AgentSkill

_UNITS = ("hours", "hour", "minutes", "mins", "minute")
# A time of day is one number or two: 9 am, 9:15.
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_ORDERS = ("first", "second", "third", "fourth", "fifth", "last")
_COUNTED = ("weekdays", "working days", "workdays", "business days", "weekend days")
_PRONOUNS = ("i", "we", "you", "he", "she", "they", "it")

CLOCK = AgentSkill(
    id="clock",
    name="Times of day",
    description="Adds hours and minutes to a time of day, and measures from one to another.",
    tags=[
        *("when should i start", "when can i go home", "when can i leave", "how long is that"),
        *("from quarter past", "from quarter to", "from half past"),
        *(f"{unit} {side} #" for unit in _UNITS for side in ("after", "before", "from", "past")),
        *(
            f"{unit} {side} {time}"
            for unit in _UNITS
            for side in ("after", "before")
            for time in ("noon", "midnight", "midday", "half past", "quarter")
        ),
        *(f"# {unit} to # #" for unit in _UNITS),
        *(f"# # {sign} # {unit}" for sign in ("plus", "minus") for unit in _UNITS),
        *(
            f"{half} {sign} # {unit}"
            for half in ("am", "pm")
            for sign in ("plus", "minus")
            for unit in _UNITS
        ),
        *(f"past # {sign}" for sign in ("plus", "minus")),
        *(f"# {unit} {asked}" for unit in _UNITS for asked in ("when", "what time", "until when")),
        *(
            f"# # {asked}"
            for asked in ("when do", "when does", "when is", "when will", "what time")
        ),
        *(f"# # how long {verb}" for verb in ("do", "does", "is", "was", "did", "will")),
        *(f"# {unit} that starts at #" for unit in _UNITS),
        *(f"and {verb} # {unit}" for verb in ("takes", "lasts", "needs") for unit in _UNITS),
        *(f"{verb} # {unit}" for verb in ("takes", "lasts") for unit in _UNITS),
        *(f"when do {who} arrive" for who in _PRONOUNS),
        *(
            "ends at what time",
            "over at what time",
            "ends when",
            "when does it end",
            "when is it over",
            "when am i done",
            "when am i there",
        ),
        *(
            f"when do {who} have to {verb}"
            for who in _PRONOUNS
            for verb in ("leave", "start", "go")
        ),
        *(
            f"when must {who} {verb}"
            for who in _PRONOUNS
            for verb in ("leave", "start", "go", "put")
        ),
        *("long is it from #", "hours from #", "minutes from #", "hours between #"),
        *(
            "minutes between #",
            "hours are between #",
            "minutes are between #",
            "difference between # #",
        ),
        *("hours is it from #", "minutes is it from #", "hours are there between #"),
        *(
            "long is it from noon",
            "minutes are there between #",
            "time between #",
            "long is # # to # #",
        ),
        *(f"from # # {to} # #" for to in ("to", "until", "till")),
        *(f"from # # {to} #" for to in ("to", "until", "till")),
        *(f"from # {half} {to} #" for half in ("am", "pm") for to in ("to", "until", "till")),
        *(f"from # {to} # {half}" for half in ("am", "pm") for to in ("to", "until", "till")),
        *(
            "between # # and # #",
            "# # and get up at #",
            "# # and arrives at #",
            "# # and ends at #",
        ),
        *(f"how long do {who} sleep" for who in _PRONOUNS),
        *(f"how many hours do {who} work" for who in _PRONOUNS),
        *("in # hour time", "# # in # hour", "# pm in #", "# # pm in #", "# # am in #"),
        *(f"time {verb} it be in #" for verb in ("will", "would")),
        *(f"time was it # {unit} ago" for unit in _UNITS),
    ],
    examples=["what time is it 3 hours after 10:45", "how long is it from 9:15 to 17:30"],
)
CALENDAR = AgentSkill(
    id="calendar",
    name="Calendar",
    description="Finds dates of weekdays, working days, week numbers, ages and leap years.",
    tags=[
        *("years ago was #", "years ago is #"),
        *(
            f"{order} {day} {joint} {month}"
            for order in _ORDERS
            for day in _WEEKDAYS
            for joint in ("of", "in")
            for month in _MONTHS
        ),
        *(
            f"{asked} {order} {day}"
            for asked in ("date is", "date was", "when is", "when was", "day is", "date of")
            for order in ("next", "last", "this", "coming")
            for day in _WEEKDAYS
        ),
        *(f"date is {day}" for day in _WEEKDAYS),
        *(f"# weeks from {day}" for day in _WEEKDAYS),
        *(f"a week from {day}" for day in _WEEKDAYS),
        *(
            f"many {days} {verb}"
            for days in _COUNTED
            for verb in ("are", "between", "from", "until", "in")
        ),
        *(
            f"many {days} {verb} {month}"
            for days in _COUNTED
            for verb in ("does", "has")
            for month in _MONTHS
        ),
        *(
            f"many {day}s {verb}"
            for day in _WEEKDAYS
            for verb in ("are", "between", "from", "in", "does", "has", "until")
        ),
        *("week number", "calendar week", "which week is it", "what week is it", "what week is #"),
        *("which week is #", "number of the week", "week of the year", "week are we in"),
        *(
            "was born on #",
            "born in #",
            "was born #",
            "how old am i",
            "age if i was born",
            "birthday is #",
        ),
        *(
            "leap year",
            "how long ago was #",
            "long is it since #",
            "years since #",
            "months since #",
        ),
        *("days are left this year", "days are left in the year", "days are left in this year"),
        *("days left this year", "days left in the year", "days left in this year"),
        *(
            "until my birthday on #",
            "long until #",
            "months until #",
            "years until #",
            "years are between #",
        ),
    ],
    examples=["when is the second Monday of March 2027", "I was born on 14 May 1990, how old am I"],
)
