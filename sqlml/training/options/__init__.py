"""What a training statement asks for: options read, checked and completed."""
