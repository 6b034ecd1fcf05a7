"""Labelled images as people have them, read into one form: folders, CSV, COCO, Label Studio, Hugging Face."""
