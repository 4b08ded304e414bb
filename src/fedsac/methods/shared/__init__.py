"""What several methods need."""
