"""The run's budget as pytest sees it: one for all of xdist's workers, and the end of the run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import RunLimits
from pytest_intercode.rollouts.budgets import RunBudget

__all__ = ["SharedBudget"]


class SharedBudget:
    """What is left for the run; also a pytest plugin.

    Args:
        config: pytest's; a worker's says where the budget's file is.
        limits: what the run may use up.

    Attributes:
        budget: what is left.
    """

    def __init__(self, config: pytest.Config, limits: RunLimits) -> None:
        self._file: Path | None = None
        given = getattr(config, "workerinput", {}).get("intercode_budget")
        began, path = given or (None, "")
        self.budget = RunBudget(limits, began=began, path=Path(path) if path else None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Let an xdist worker draw on the one budget."""
        if not self.budget.limits:
            return
        if self._file is None:
            handle, name = tempfile.mkstemp(prefix="pytest-intercode-budget-")
            os.close(handle)
            self._file = Path(name)
        node.workerinput["intercode_budget"] = (self.budget.began, str(self._file))

    def stop_if_spent(self, session: pytest.Session) -> str:
        """End the run after this item if its budget is used up; return the reason."""
        spent = self.budget.charge()
        if spent:
            session.shouldstop = f"{spent}: no further episode is begun"
        return spent

    def pytest_unconfigure(self) -> None:
        """Remove the workers' file."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
