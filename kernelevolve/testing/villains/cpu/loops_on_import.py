# expect: compile_timeout at build
"""Never finishes its import."""
while True:
    pass
