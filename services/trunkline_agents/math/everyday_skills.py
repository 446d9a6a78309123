"""The skill of the math agent for sums of everyday life. Its tags decide routing.

Several tags outweigh the name of a currency. Documents have numbers too, so a tag is a part of a
question, and no number alone.
"""

from trunkline import AgentSkill
from trunkline_agents.math.everyday_sums import PARTS

_MONEY = ("euros", "dollars", "pounds")
_NUMBERS_BESIDE_MONEY = (
    *(
        f"# {money} {asked}"
        for money in _MONEY
        for asked in ("what is it in total", "how many percent")
    ),
    *(f"# {money} to #" for money in _MONEY),
    *(f"# {money} {sign} #" for money in _MONEY for sign in ("times", "multiplied by")),
    *(
        f"{is_} {changed} by #"
        for is_ in ("is", "are", "was", "were", "gets")
        for changed in ("reduced", "discounted", "raised", "increased", "lowered")
    ),
    *(f"# {money} at # percent" for money in _MONEY),
    *(f"# {money} a {unit}" for money in _MONEY for unit in ("week", "month", "day", "year")),
    *(f"and # {money}" for money in _MONEY),
    *(f"# to # {money}" for money in _MONEY),
    *(f"# {money} at #" for money in _MONEY),
    *(f"# # {money} and" for money in _MONEY),
    *(
        f"# {money} for # {unit}"
        for money in _MONEY
        for unit in ("hours", "days", "months", "people")
    ),
)
EVERYDAY = AgentSkill(
    id="everyday",
    name="Everyday sums",
    description="Adds prices, works out shares, rates, speeds and averages, and orders numbers.",
    tags=[
        *_NUMBERS_BESIDE_MONEY,
        *(
            "does everyone pay",
            "does everybody pay",
            "everyone owe",
            "everybody owe",
            "does each pay",
        ),
        *(
            "my new salary",
            "my new wage",
            "my new rent",
            "percent pay cut",
            "# pay cut",
            "# pay rise",
        ),
        *("raise of # percent", "rise of # percent", "cut of # percent", "increase of # percent"),
        *("in total", "altogether", "how much is that", "what s the total", "what is the total"),
        *("what percentage is that", "how many percent is that", "what percentage is it"),
        *(
            "what percentage of",
            "by how much percent",
            "increase in percent",
            "discount in percent",
        ),
        *("decrease in percent", "reduction in percent", "change in percent", "rise in percent"),
        *("fall in percent", "as a percentage", "from # to # in percent", "percent did it"),
        *("how much vat", "how much tax", "vat is in #", "vat is included", "tax is in #"),
        *("of a number is #", "is the number", "did it cost before", "the original price"),
        *(
            "original price",
            "cost originally",
            "tip first",
            "people # tip",
            "tip shared",
            "tip split",
        ),
        *(
            "into hours and minutes",
            "into hours",
            "into minutes",
            "times does # fit",
            "# fit into #",
        ),
        *("% added", "percent added", "vat added", "# percent vat", "plus vat"),
        *("which is more", "which is less", "what comes next", "what percentage is"),
        *("# grams cost", "# ml cost", "recipe for #", "# percent cheaper", "# cheaper"),
        *("how much each", "for each of us", "what s the average", "what is the average"),
        *("the average of", "average grade", "average of them", "what is the mean"),
        *("what speed", "how fast", "average speed", "speed in km", "my speed", "its speed"),
        *("km in # hours", "km in # minutes", "miles in # hours", "miles in # minutes"),
        *("how long do i need for # km", "how long for # km", "at # km h", "far do i get in #"),
        *("price per kilo", "price per litre", "price per kg", "price per gram", "per kilo cost"),
        *("# for # # how much", "how much are #", "what do # cost", "what does # cost"),
        *(
            f"# {unit} {verb}"
            for unit in ("kg", "g", "kilos", "litres")
            for verb in ("cost", "costs", "of")
        ),
        *("litres per # km", "liters per # km", "consumption per # km", "fuel consumption"),
        *("to the nearest ten", "to the nearest hundred", "to the nearest thousand"),
        *(
            "to the nearest whole",
            "to the nearest cent",
            "to the nearest euro",
            "to the nearest tenth",
        ),
        *(
            "which is larger",
            "what is bigger",
            "what s bigger",
            "what is larger",
            "what is smaller",
        ),
        *("sort #", "order # #", "arrange #", "sort the numbers", "from smallest to largest"),
        *("from largest to smallest", "in ascending order", "in descending order"),
        *("what comes next #", "comes next # #", "next number in the sequence", "in the sequence"),
        *(
            "next number in this",
            "next in the sequence",
            "continue the sequence",
            "of the sequence #",
        ),
        *("next number # #", "what number comes next", "what is the next number", "the sequence #"),
        *(
            "mean in numbers",
            "in modern numbers",
            "roman",
            "in normal numbers",
            "in arabic numerals",
            "in arabic numbers",
        ),
        *(
            f"number is {numeral}"
            for numeral in ("mcmxc", "xiv", "xix", "mmxx", "xl", "xc", "xlii")
        ),
        *("interest on #", "at # interest", "# percent interest", "# interest", "years at #"),
        *("after # years at", "hourly wage", "hourly rate", "an hour is that", "each how many"),
        *(
            "each how much",
            "how much is that after",
            "is that after a year",
            "how long until i have #",
        ),
        *("# m by #", "# m by # # m", "what s its area", "what is its area", "the area"),
        *("twice as old", "half as old", "times as old", "years older", "years younger"),
        *("how old is she", "how old is he", "then divided by", "then multiplied by"),
        *(
            f"{part} {joint} #"
            for part in PARTS
            for joint in ("in", "are in", "are there in", "make", "make up", "go into", "fit into")
        ),
        *("# of # students", "# of # people", "# out of #", "# of the # students"),
    ],
    examples=[
        "3 coffees at 2.80 and a cake at 4.50",
        "8 of 32 students failed, what percentage is that",
    ],
)
