"""What a command does, without its command line."""
