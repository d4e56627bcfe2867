"""Reading and writing episode records, tries, tables, baselines, comparisons."""
