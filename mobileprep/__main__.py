"""``python -m mobileprep``: the command line, where its script is not on the path."""

from mobileprep.cli.main import entry

if __name__ == "__main__":
    entry()
