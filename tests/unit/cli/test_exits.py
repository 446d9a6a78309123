"""Exit codes tell errors apart that need another reaction."""

import pytest

from trunkline import errors
from trunkline.cli.exits import ExitCode, print_error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PeerUnavailableError("mesh-1:4", "it left"), ExitCode.UNREACHABLE),
        (errors.OverloadedError("math", "3"), ExitCode.LIMITED),
        (errors.LimitExceededError("account 'a' has used its budget", "3"), ExitCode.LIMITED),
        (errors.TreeLimitError("depth", "a > b", "raise depth"), ExitCode.LIMITED),
        (errors.TaskNotFoundError("t-1"), ExitCode.FAILED),
        (errors.InvalidArgumentError("--since", "is no time"), ExitCode.USAGE),
        (errors.InvalidArgumentError("KIND", "is no schema"), ExitCode.USAGE),
        (errors.ConfigurationError("--mesh", "is not HOST:PORT"), ExitCode.USAGE),
        (errors.ConfigurationError("trunkline.toml", "is not TOML"), ExitCode.FAILED),
        (errors.InvalidArgumentError("--api-key or TRUNKLINE_API_KEY", "?"), ExitCode.FAILED),
        (errors.InvalidArgumentError("message.parts", "is empty"), ExitCode.FAILED),
        (ValueError("x"), ExitCode.FAILED),
    ],
    ids=lambda value: value.reason if isinstance(value, errors.TrunklineError) else None,
)
def test_an_error_has_the_code_of_its_kind(
    error: Exception, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_error(error) is code
    assert capsys.readouterr().err.startswith("error: ")
