"""Kubernetes as a backend: one pod for each sandbox, and one attached stream to its keeper."""
