"""The report of models on several benchmarks."""
