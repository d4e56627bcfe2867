"""Python: an action is source code that runs in one interpreter."""
