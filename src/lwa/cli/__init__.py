"""The command line: one file per command. Only its commands know about options, printing and exit codes."""
