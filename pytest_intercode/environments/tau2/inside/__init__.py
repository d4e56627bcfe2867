"""Code that runs in the sandboxes of tau2 tasks. Its text is sent there; the host does not run it.

The domains' own code imports a library of data models and a package of its own, which sandboxes do
not have. ``models`` and ``world`` replace what it uses of them, and ``world`` serves its tools.
"""
