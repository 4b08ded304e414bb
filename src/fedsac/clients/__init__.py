"""What clients do: who they are, how they train, and what else they might do."""
