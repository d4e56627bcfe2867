"""The environment of tau2-bench's tasks: tools over a database, and a customer to talk to."""
