"""The versions of Python and pytest that we support, each tried: ``scripts/test --matrix``."""
