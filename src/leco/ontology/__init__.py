"""Label ontologies: versions, transitions, evidence, changes, inference from co-labelled data, files, drawings."""
