"""``python -m errata``: the command line."""

from errata.cli import main

if __name__ == "__main__":
    main()
