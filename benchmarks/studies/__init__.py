"""The studies behind docs/results: which runs they are, how these are carried out, and the pages written from them."""
