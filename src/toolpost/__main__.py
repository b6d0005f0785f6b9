"""`python -m toolpost` is `toolpost`."""

from toolpost.cli import main

main()
