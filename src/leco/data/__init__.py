"""From files to endless batches: manifests, importers, benchmarks, periods, batches and views."""

UNTESTED = "-plan"  # suffix of fingerprints of data whose test split was left out; reports skip them
SPLITS = ("train", "val", "test")  # of a sample in several, the last one keeps it
