"""The paper: its settings and printed numbers, and its tables, claims, figures and theorems made from our runs."""
