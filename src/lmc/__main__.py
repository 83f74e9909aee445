"""`python -m lmc`, where the command `lmc` is not on the path."""

from lmc.cli import main

if __name__ == "__main__":
    main()
