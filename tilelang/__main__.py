"""`python -m tilelang`: the command line."""

from tilelang.cli import main

if __name__ == "__main__":
    main()
