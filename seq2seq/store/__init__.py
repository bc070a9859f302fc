"""Stored models: model folders, checkpoints, and the search for the folder that MODEL names."""
