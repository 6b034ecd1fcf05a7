"""The command line: verbs only; what they do lives in the layers below and is imported when a verb needs it."""
