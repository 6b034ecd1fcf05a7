"""Importers of labelled images: folders, tables, COCO, Label Studio and Hugging Face datasets."""
