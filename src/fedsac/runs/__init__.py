"""From a config to a result: set up, play the rounds, record, survive a kill, compare."""
