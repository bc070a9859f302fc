"""A small and fast student of one or several teachers, in steps that are each done once."""
