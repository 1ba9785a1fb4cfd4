"""What each command of `cli.py` does. Signatures and help are there, so that `--help` imports none of this."""
