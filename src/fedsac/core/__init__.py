"""The paper on tensors: what a unit owns, allocation, aggregation, fairness, metrics."""
