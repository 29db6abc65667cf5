"""What the commands share: options, places, progress, summaries."""
