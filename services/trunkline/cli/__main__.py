"""Runs the command line as `python -m trunkline.cli`, independent of PATH."""

from trunkline.cli.entry import main

if __name__ == "__main__":
    main()
