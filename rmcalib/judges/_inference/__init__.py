"""How Hugging Face models are run fast: packing, forward passes, attention, devices, heads, templates."""
