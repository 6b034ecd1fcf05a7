"""From files to endless batches: manifests, importers, benchmarks, periods, batches and views."""

UNTESTED = "-plan"  # suffix of fingerprints of data whose test split was left out; reports skip them
RELABELLED = {  # annotation strategies, and the share of a period's samples that they relabel; all-fine relabels all
    **{"label-new": 0.0, "with-unlabelled": 0.0, "relabel-25": 0.25, "relabel-50": 0.5, "relabel-75": 0.75},
    **{"relabel-old": 1.0, "all-fine": 1.0},
}
SPLITS = ("train", "val", "test")  # of a sample in several, the last one keeps it
