"""Rows of SWE-bench and its relatives as tasks; a manifest says what their columns are."""
