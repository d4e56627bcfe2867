"""Recorded runs scored again by another profile or function, without agents or sandboxes."""
