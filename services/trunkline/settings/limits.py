"""The table `[limits]` of `trunkline.toml`: limits and budgets of accounts, keys and models."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, ClassVar, Final, TypeAlias

from trunkline.settings.constraints import Between

_NO_OTHER_KEYS: Final = {"extra": "forbid"}

Count: TypeAlias = Annotated[int, Between(1, 1_000_000)]
Tokens: TypeAlias = Annotated[int, Between(1, 10**15)]
Amount: TypeAlias = Annotated[float, Between(0.000_001, 10**12)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Limits of use in a day and in a month of UTC.

    A missing limit means unlimited use.
    Tokens are the tokens that models read and write. Cost is the price of these tokens in US
    dollars, by `input_price` and `output_price` of the models.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _NO_OTHER_KEYS

    day_tokens: Tokens | None = None
    """The tokens in a day."""
    month_tokens: Tokens | None = None
    """The tokens in a month."""
    day_cost: Amount | None = None
    """The cost in a day."""
    month_cost: Amount | None = None
    """The cost in a month."""

    @property
    def is_budget(self) -> bool:
        """True if tokens or cost are limited."""
        return self.limits_cost or (self.day_tokens, self.month_tokens) != (None, None)

    @property
    def limits_cost(self) -> bool:
        """True if cost is limited."""
        return (self.day_cost, self.month_cost) != (None, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountLimits(Budget):
    """Limits of one account: at each bridge, at each host of tasks, and its budget."""

    rate: Annotated[float, Between(0.001, 1_000_000)] | None = None
    """The requests in a second, on average, at each bridge."""
    burst: Count | None = None
    """The requests at once that `rate` allows after a pause. The default is the number of one
    second."""
    streams: Count | None = None
    """The open streams at each bridge."""
    tasks: Count | None = None
    """The tasks at each host that run or wait to run, including tasks that the host's agents
    start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountLimitSettings(AccountLimits):
    """The table `[limits.account.NAME]`.

    Limits that it does not set are the limits of every account.
    """

    defaults: bool = True
    """Apply the default limits. With false, use is unlimited where this table sets no limit."""
    key: Mapping[str, Budget] = field(default_factory=dict)
    """Budgets of callers in this account, by the name of an API key or the subject of a token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitSettings(AccountLimits):
    """The table `[limits]`. Limits directly in this table hold for every account."""

    account: Mapping[str, AccountLimitSettings] = field(default_factory=dict)
    """Other limits of single accounts: `[limits.account.NAME]` tables."""
    model: Mapping[str, Budget] = field(default_factory=dict)
    """Budgets of models, for all accounts together: `[limits.model."PROVIDER:NAME"]` tables."""

    def of_account(self, account: str) -> AccountLimits:
        """Return the limits of an account."""
        own = self.account.get(account)
        if own is None:
            return self
        if not own.defaults:
            return own
        names = [limit.name for limit in fields(AccountLimits)]
        missing = {name: getattr(self, name) for name in names if getattr(own, name) is None}
        return replace(own, **missing)

    def of_key(self, account: str, caller: str) -> Budget | None:
        """Return the budget of a caller, or None if it is unlimited."""
        own = self.account.get(account)
        return own.key.get(caller) if own is not None else None

    @property
    def has_budgets(self) -> bool:
        """True if there is a budget of an account, a key or a model."""
        return any(budget.is_budget for budget in self._list_budgets())

    @property
    def has_cost_budgets(self) -> bool:
        """True if there is a budget of cost."""
        return any(budget.limits_cost for budget in self._list_budgets())

    def _list_budgets(self) -> list[Budget]:
        keys = [key for own in self.account.values() for key in own.key.values()]
        return [self, *self.account.values(), *keys, *self.model.values()]
