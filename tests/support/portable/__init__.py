"""This machine as another operating system: what Linux alone has is taken away."""
