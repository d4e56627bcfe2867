"""Reading and writing episode records; tries, tables, baselines and comparisons."""
