"""What to annotate next, and how the answers come back: label new samples, relabel old ones, or both."""
