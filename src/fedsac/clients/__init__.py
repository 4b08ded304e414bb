"""The clients: which data each has, how they train, and how they may behave otherwise (be absent, late, attack)."""
