"""`python -m lwa`: the command line."""

from lwa.cli.app import main

if __name__ == "__main__":
    main()
