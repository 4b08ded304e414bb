"""The figures behind docs/security.md: attacks on every method, and what models say about the samples behind them."""
