"""A clock that moves only when a test moves it."""


class ManualClock:
    """A callable that returns `now`, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
