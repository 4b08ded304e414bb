"""From a config to a result: setup, the round loop, records, run folders and checkpoints, comparisons."""
