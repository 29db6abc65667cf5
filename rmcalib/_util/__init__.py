"""Helpers that all packages use: arrays, files, storage, interrupts, processes, the Hub, the terminal."""
