"""The cost of pytest-intercode, compared with what it builds on: ``python -m benchmarks``.

Every part measures ours and its reference in turn, in one run, so that the ratios also hold on a
busy machine. Nothing here is shipped or imported by the plugin.
"""
