"""What a GPU does in its own way."""
