"""Reward functions: pure functions of what an episode left behind."""
