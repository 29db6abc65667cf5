"""The embedded demo: a small trained reward model and a benchmark, in every installation."""
