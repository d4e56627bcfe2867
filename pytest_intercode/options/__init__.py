"""The options: one declaration of each, for pytest, the commands, the docs and the settings."""
