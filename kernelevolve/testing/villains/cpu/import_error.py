# expect: compile_error at build
"""Needs a package that does not exist."""
import a_package_that_does_not_exist


class ModelNew:
    pass
