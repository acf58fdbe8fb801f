"""Start of `python -m megabuild COMMAND` in an environment with megabuild's requirements."""

from command_line.main import main

if __name__ == "__main__":
    main()
