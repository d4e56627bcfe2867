"""The environment of project tests: a shell in a copy of a repository. The test grades it."""
