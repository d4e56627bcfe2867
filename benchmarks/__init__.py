"""What pytest-intercode costs, measured against what it stands on: ``python -m benchmarks``.

Every part measures ours and its reference in turn, in one run, so that the ratios hold on a busy
machine too. Nothing here is shipped or imported by the plugin.
"""
