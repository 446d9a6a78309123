"""The errors of OAuth to tool servers, in a module that does not import mcp."""


class AuthorizationError(Exception):
    """There is no token: the authorization server does not answer, refuses, or can't be used."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        """In one line, without secrets."""


class SignInRequiredError(AuthorizationError):
    """A person has to sign in. The problem has the command for it."""

    def __init__(self, problem: str, *, is_step_up: bool) -> None:
        super().__init__(problem)
        self.is_step_up = is_step_up
        """Only the refused request needs the sign-in."""
