"""What pytest leaves alone here: only Sphinx imports it."""

collect_ignore = ["conf.py", "_ext/generated_pages.py", "_ext/mathml.py"]
