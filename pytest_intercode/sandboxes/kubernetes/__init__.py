"""Kubernetes as a backend: a pod for each sandbox, and one attach to its keeper."""
