"""Data sets (published, from files, from folders with one file per client) and how they are split over clients."""
