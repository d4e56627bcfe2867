"""A shell whose tasks are questions about a machine, or have scripts that check it."""
