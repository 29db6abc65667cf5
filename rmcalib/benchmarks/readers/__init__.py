"""One module per family of benchmarks: how its files are read, and how its authors score."""
