"""`python -m kernelevolve` is the command `kernelevolve`."""

from kernelevolve.cli import main

if __name__ == "__main__":
    main()
