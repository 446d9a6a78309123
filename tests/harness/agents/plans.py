"""Plans of steps, for the tests of supervisors."""

from collections.abc import Sequence

from hypothesis import strategies as st

from trunkline.supervisor.steps import Step
from trunkline.v1 import event_pb2

Plan = Sequence[tuple[int, ...]]


def build_steps(plan: Plan) -> list[Step]:
    """Return steps, each after the steps whose numbers are listed, and in need of their results."""
    return [
        Step(
            f"step-{number}",
            " ".join(f"{{{each}}}" for each in after) or "begin",
            event_pb2.RouteDecided(agent="math"),
            tuple(f"step-{each}" for each in after),
        )
        for number, after in enumerate(plan, start=1)
    ]


@st.composite
def plans(draw: st.DrawFn) -> list[Step]:
    """Plans of up to eight steps in any order, each after any of those before it."""
    count = draw(st.integers(1, 8))
    plan = [
        tuple(sorted(draw(st.sets(st.integers(1, each))))) if each else () for each in range(count)
    ]
    return draw(st.permutations(build_steps(plan)))
