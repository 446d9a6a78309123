"""A clock that stands until a test moves it."""


class ManualClock:
    """Gives `now`, in seconds, to whoever calls it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
