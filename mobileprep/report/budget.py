"""Limits in words."""

from __future__ import annotations

from mobileprep.plan.records import BudgetLine


def budget_text(line: BudgetLine) -> str:
    """What the model takes, and what is left: ``48,000 of 50,000, 2,000 left``."""
    return f"{number_text(line.found)} of {number_text(line.limit)}, {number_text(line.left)} left"


def number_text(amount: float) -> str:
    """Whole numbers to the last digit, others to four."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"
