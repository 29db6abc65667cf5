"""From a reward model's name to the scores of a benchmark's responses."""
