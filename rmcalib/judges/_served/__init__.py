"""Reward models behind an HTTP server: vLLM, SGLang and OpenRLHF."""
