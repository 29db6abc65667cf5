"""Where the golden values of the paper's public code are, if they are there."""

from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"
DATA_SETS = ("iris", "political", "authorship", "glass")
