# expect: compile_timeout at build
"""Its compiler never ends, and has left the process group."""
import subprocess

subprocess.run(["setsid", "sleep", "1000"])
