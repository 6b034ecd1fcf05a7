"""From files on disk to endless batches: manifests, benchmarks, periods, streams and views."""
