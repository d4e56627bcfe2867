"""Reporting: the results file, the terminal's table, what goes on pytest's reports."""
