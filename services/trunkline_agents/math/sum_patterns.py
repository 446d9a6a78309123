"""The questions that the tool `work_out` answers: declarations of the everyday sums."""

from typing import Any

from trunkline_agents.math.everyday_sums import COMPOUND, EVERYDAY_SUMS, GROWN, INTEREST, SENTENCES
from trunkline_agents.math.phrases import NUMERALS, SOME_WORDS
from trunkline_agents.math.wording import NUMBER_WORDS
from trunkline_agents.mcp_server import MatchRuleJson

_END = r"\s*[?.]?$"


def write_arguments(formula: str) -> dict[str, Any]:
    """Return the arguments for a formula. Those of shares, times 100, ask for a percentage."""
    share = formula.removesuffix("*100")
    return {"expression": formula} if share == formula else {"expression": share, "form": "percent"}


WORK_OUT: list[MatchRuleJson] = [
    *(
        {
            "contains": condition,
            "pattern": rf"{SOME_WORDS}{phrase}{_END}",
            "exclude": {"before": NUMERALS},
            "arguments": write_arguments(formula),
        }
        for condition, phrase, formula in EVERYDAY_SUMS
    ),
    *(
        {
            "contains": condition,
            "pattern": rf"^{sentence}{_END}",
            "exclude": {
                "0": rf"{excluded}|\d-\d\d" + ("" if condition == "nearest" else f"|{NUMBER_WORDS}")
            },
            "arguments": write_arguments(formula),
        }
        for condition, sentence, formula, excluded in SENTENCES
    ),
    *(
        {
            # Of some years: "5% interest on 2000 over 3 years"
            "contains": rf"{contained}.*\byears?|\byears?.*{contained}",
            "pattern": rf"{SOME_WORDS}{phrase}{_END}",
            "arguments": arguments,
        }
        for phrases, contained, arguments in (
            (COMPOUND, "compound", {"expression": "({x})*((1+({p})%)^{n}-1)"}),
            (GROWN, r"%|per\s?cent", {"expression": "({x})*(1+({p})%)^{n}"}),
            (
                INTEREST,
                "interest",
                {
                    "expression": "({x})*(1+({p})%)^{n}-({x})",
                    "other_reading": "({x})*({p})%*{n}",
                    "other_meaning": "without interest on interest",
                },
            ),
        )
        for phrase in phrases
    ),
]
