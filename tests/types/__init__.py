"""What users write, for mypy alone: it is to find what is wrong here, and nothing else.

Each line that is wrong has a ``type: ignore`` with mypy's name for the mistake. In strict mode, one
that is not needed is a mistake, too, so that no test runs these files.
"""
