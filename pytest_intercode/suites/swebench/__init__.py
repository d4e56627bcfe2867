"""Rows of SWE-bench and its relatives as tasks; a manifest defines the meaning of columns."""
