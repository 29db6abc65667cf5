"""Policies as judges: log-probabilities of responses under language models."""
