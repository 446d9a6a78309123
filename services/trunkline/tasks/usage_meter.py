"""Counts the tokens of the models that a turn calls, for its request's limits and for budgets."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from trunkline.core.backoff import OUTAGE_S, PATIENCE_S, RetryWindow, retry_while_unavailable
from trunkline.core.settings import ModelSettings
from trunkline.core.storable_texts import check_texts
from trunkline.errors import InvalidArgumentError, JournalUnavailableError
from trunkline.observe.metrics import instruments
from trunkline.tasks.budgets import Budgets, ModelUsage
from trunkline.tasks.task_tree import TaskTree

_NANO_PER_MICRO = 1000
# More than any reply has, and so few that sums of them fit into every store.
_MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class UsageMeter:
    """Checks each call of a model before it, and counts its tokens afterwards.

    Both the limits of the request and the budgets get the same numbers. Thread-safe, because nodes
    of graphs may run in threads.
    """

    tree: TaskTree
    account: str
    caller: str
    budgets: Budgets | None = None
    """The budgets of accounts, keys and models, if the settings have budgets."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    """The settings that have the prices of models, by `provider:name` or provider."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_limited(self) -> bool:
        """True if a check may refuse a call."""
        return self.budgets is not None or self.tree.limits_models

    async def check(self, model: str) -> None:
        """Check that a model may be called. Waits for the usage as the turn waits for its journal.

        Raises:
            TreeLimitError: the limits of the request leave no tokens, or no money.
            LimitExceededError: a budget is used up.
            JournalUnavailableError: the usage can't be read.
        """
        with self._lock:
            self.tree.check_model_call()
        if self.budgets is not None:
            check = partial(self.budgets.check, self.account, self.caller, model)
            await retry_while_unavailable(check, limit_s=OUTAGE_S)

    def check_blocking(self, model: str) -> None:
        """Check that a model may be called, as `check` does, from a thread."""
        with self._lock:
            self.tree.check_model_call()
        # Shorter, because nothing ends the wait of a thread.
        window = RetryWindow(PATIENCE_S)
        while self.budgets is not None:
            try:
                self.budgets.check_blocking(self.account, self.caller, model)
            except JournalUnavailableError as error:
                time.sleep(window.next_pause_s(error))
            else:
                return

    def report(self, model: str, *, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of a model that the agent called by another client than the mesh's.

        Raises:
            InvalidArgumentError: a number is negative, not whole or above a million million, or the
                name of the model can't be stored.
        """
        check_texts(model=model)
        numbers: dict[str, object] = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        for name, tokens in numbers.items():
            if not isinstance(tokens, int) or not 0 <= tokens <= _MOST_TOKENS:
                raise InvalidArgumentError(name, f"must be a whole number from 0 to {_MOST_TOKENS}")
        self.record(model, input_tokens=input_tokens, output_tokens=output_tokens)

    def record(self, model: str, *, input_tokens: int, output_tokens: int) -> int:
        """Count the tokens of a reply; return their price in millionths of a US dollar.

        The numbers of a model's server may be anything, so they are limited.
        """
        input_tokens, output_tokens = (
            max(0, min(tokens, _MOST_TOKENS)) for tokens in (input_tokens, output_tokens)
        )
        prices = self._find_price(model, "input_price"), self._find_price(model, "output_price")
        usage = ModelUsage(input_tokens, output_tokens, *prices)
        with self._lock:
            # Rounded up, so that many small replies are not free.
            cost_micros = -(-usage.nano_cost // _NANO_PER_MICRO)
            self.tree.add_model_call(tokens=usage.tokens, cost_micros=cost_micros)
        if usage.nano_cost:
            instruments.MODEL_COST.add(usage.nano_cost / 1e9, model)
        if self.budgets is not None:
            self.budgets.record(self.account, self.caller, model, usage)
        return cost_micros

    def _find_price(
        self, model: str, field_name: Literal["input_price", "output_price"]
    ) -> float | None:
        """Return a price of a model, from its own table, else from its provider's."""
        for name in (model, model.partition(":")[0]):
            table = self.models.get(name)
            price: float | None = getattr(table, field_name) if table is not None else None
            if price is not None:
                return price
        return None
