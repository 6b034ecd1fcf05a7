"""A trained model: predict, evaluate, upgrade, export, save and load."""
