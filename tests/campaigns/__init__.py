"""Campaigns: many episodes, or many faults, and one figure; ``python -m tests.campaigns --help``.

Each has a short form among the tests. Whole, they take minutes to hours, and write their figures
into docs/reliability.md.
"""
