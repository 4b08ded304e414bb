"""The paper's equations on tensors: which parameters a neuron owns, allocation, aggregation, fairness, metrics."""
