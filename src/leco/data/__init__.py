"""From files to endless batches: manifests, importers, benchmarks, periods, batches and views."""

UNTESTED = "-plan"  # suffix of fingerprints of data whose test split was left out; reports skip them
