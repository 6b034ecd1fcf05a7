"""``python -m leco`` is the same as the command ``leco``."""

from leco.cli.main import main

if __name__ == "__main__":
    main()
