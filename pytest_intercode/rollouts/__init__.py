"""Rollouts: one agent on one task in one environment, to a record; and who runs them."""
