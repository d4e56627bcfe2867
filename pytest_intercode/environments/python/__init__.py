"""Python: an action is source, run in one interpreter."""
