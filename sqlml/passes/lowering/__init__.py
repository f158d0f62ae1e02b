"""From model operators to tensor operators, one tree strategy a file."""
