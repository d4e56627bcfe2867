"""Runnable benchmarks that print ratios: ``python -m benchmarks [NAME ...]``."""
