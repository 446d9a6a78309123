"""Lets `python -m trunkline.cli` be the command line, whatever PATH says."""

from trunkline.cli.entry import main

if __name__ == "__main__":
    main()
