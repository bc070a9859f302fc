"""`python -m seq2seq` is `s2s`; torchrun starts its processes this way."""

import sys

from seq2seq.cli import main

if __name__ == "__main__":
    sys.exit(main())
