"""Rollouts, each of one agent on one task in one environment, and the executors that run them."""
