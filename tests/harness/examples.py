"""How many examples a property gets: a share of the profile, which `make prove` chooses larger."""

from hypothesis import settings


def share(fraction: float, *, steps: int = 50) -> settings:
    """Return settings with a share of the profile's examples.

    Args:
        fraction: the share. It is below 1 where one example is expensive.
        steps: the largest number of steps of a state machine.
    """
    examples = max(1, int(fraction * settings().max_examples))
    return settings(max_examples=examples, stateful_step_count=steps)
