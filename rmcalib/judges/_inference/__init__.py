"""Fast inference with Hugging Face models: packing, forward passes, attention, devices, heads, templates."""
