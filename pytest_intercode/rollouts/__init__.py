"""Runs one agent on one task in one environment, to an episode record."""
