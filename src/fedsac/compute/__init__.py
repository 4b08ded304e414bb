"""Many models at once: training, evaluation, importance of neurons."""
