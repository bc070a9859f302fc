"""What lies on disk and travels: model folders and checkpoints."""
