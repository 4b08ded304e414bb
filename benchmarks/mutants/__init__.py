"""Mutation testing: change the source in one small place after the other, and see whether a test fails."""
