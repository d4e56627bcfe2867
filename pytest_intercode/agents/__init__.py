"""Agents: how the code under test is found and called, and the agents that come with us."""
