"""An environment, a format of tasks, a parser of logs and a backend, each by an entry point."""
