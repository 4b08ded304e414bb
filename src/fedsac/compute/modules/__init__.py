"""Training, scoring and importance of any torch module, many models at once; perceptrons have code of their own."""
