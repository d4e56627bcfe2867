"""The options, each declared once for pytest, the commands, the docs and the settings."""
