"""Planning of annotations: label new samples, relabel old ones, or both; and what annotators answer."""
