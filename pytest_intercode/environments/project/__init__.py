"""The environment of project tests: a shell in the copy of a repository. A test grades it."""
