"""Settings that had other names."""

# Settings were one flat table in leco 0.1.
MOVED = {
    **{"model": "network.backbone", "pretrained": "network.weights", "norm_momentum": "network.norm_momentum"},
    **{"precision": "network.precision", "learning_rate": "optimiser.learning_rate"},
    **{"finetune_learning_rate": "optimiser.finetune_learning_rate", "weight_decay": "optimiser.weight_decay"},
    **{"momentum": "optimiser.momentum", "nesterov": "optimiser.nesterov", "schedule": "optimiser.schedule"},
    **{"average": "average.decay", "average_warm_up": "average.warm_up", "average_norm": "average.norm"},
    **{"steps": "batches.steps", "batch_size": "batches.size", "evaluate_every": "batches.evaluate_every"},
    **{"threshold": "pseudo_labels.threshold", "soft": "pseudo_labels.soft", "balance": "pseudo_labels.balance"},
    **{"st_soft_filtered": "pseudo_labels.st_soft_masked", "coarse_on_new": "history.coarse_on_new"},
    **{"mask_contradictions": "history.mask_contradictions", "head_steps": "transfer.head_steps"},
    **{"draws_a_view": "transfer.draws_per_view", "crop": "segmentation.crop", "window": "segmentation.window"},
    **{"base_size": "segmentation.base_size", "scale": "segmentation.scale"},
    **{"head": "finish.head", "adjust": "finish.adjust"},
}
RENAMED = {
    **{"network.pretrained": "network.weights"},
    **{"pseudo_labels.st_soft_filtered": "pseudo_labels.st_soft_masked"},  # filtered samples, which no code does
}


def new_name(name: str) -> str | None:
    """Return the current name of a setting that had another one, without `training.`."""
    return MOVED.get(name) or RENAMED.get(name)
