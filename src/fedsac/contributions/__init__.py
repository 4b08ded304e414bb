"""What clients bring: by the score of a model trained alone, by another measure, or as given from outside."""
