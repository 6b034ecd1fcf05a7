"""From files on disk to endless batches: manifests, benchmarks, periods, streams and views."""

UNTESTED = "-plan"  # suffix of fingerprints of data whose test split was left out; reports skip them
