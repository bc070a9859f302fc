"""The work of commands, without the command line."""
