"""Environments: reset, step, submit and reward for each action space."""
