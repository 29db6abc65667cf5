"""One module per family of benchmarks: reads its files and computes its official score."""
