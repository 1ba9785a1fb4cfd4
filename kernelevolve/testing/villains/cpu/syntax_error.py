# expect: compile_error at build
"""Not Python."""
class ModelNew(:
    pass
