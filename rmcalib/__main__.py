"""``python -m rmcalib`` is ``rmcalib``."""

from rmcalib.cli import main

if __name__ == "__main__":
    main()
