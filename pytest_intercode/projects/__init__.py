"""Project tests: the copy of a repository, what an agent did in it, and questions about that."""
