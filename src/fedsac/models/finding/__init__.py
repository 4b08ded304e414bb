"""Finding the units of any network: which slots of its tensors' axes can only be cut together."""
