"""Rates with their uncertainty, and whether two runs differ: pure functions, no dependencies.

docs/statistics.md has the formulas and their purposes.
"""
