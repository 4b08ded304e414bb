"""The clients' contributions: the score of a model trained alone, another measure, or numbers given from outside."""
