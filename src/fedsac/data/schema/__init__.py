"""Tables as they are: reading them as text, saying what their columns mean, and what does not fit."""
