"""How FedSAC+ was chosen: variants on development splits, where images cut from the training data stand in for the test
set."""
