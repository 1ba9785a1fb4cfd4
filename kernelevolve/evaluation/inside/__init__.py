"""What runs in a candidate's process: no verdict, only commands and answers."""
