"""Other libraries' FedAvg, each in an environment of its own: `python -m benchmarks peers`."""
