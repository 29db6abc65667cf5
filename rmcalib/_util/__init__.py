"""Helpers without a subject of their own: arrays, files, interrupts, processes, the Hub."""
