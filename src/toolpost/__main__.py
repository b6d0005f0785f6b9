"""`python -m toolpost` is `toolpost`."""

from toolpost.cli.main import main

main()
