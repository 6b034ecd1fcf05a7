"""Which settings a stage uses; in words alone, so that reports need not import torch."""

# What settings that a reader should be told of are unless somebody says otherwise, as in `Training` (a test compares).
USUAL = {
    **{"together": False, "mask_contradictions": False, "coarse_on_new": True, "threshold": 0.95, "soft": False},
    **{"balance": False, "st_soft_filtered": False, "head_steps": 0, "draws_a_view": 4, "pretrained": False},
    **{"adjust": 0.0, "head": "trained"},
}


def unused(coarse: str, pseudo: str, strategy: str) -> list[str]:
    """The settings of `Training` that a stage does not use, by the parts of its method and its strategy.

    >>> unused("lpl", "st-hard", "finetune")
    ['threshold', 'soft', 'st_soft_filtered', 'head_steps', 'draws_a_view', 'pretrained']
    """
    found = []
    if coarse == "ce" and pseudo == "none":
        found += ["together", "mask_contradictions"]
    if coarse == "ce":
        found.append("coarse_on_new")
    if pseudo not in ("pl", "fixmatch"):
        found += ["threshold", "soft"]
    if pseudo not in ("st-hard", "st-soft"):
        found.append("balance")
    if pseudo != "st-soft":
        found.append("st_soft_filtered")
    if strategy != "lp-ft":
        found.append("head_steps")
    if strategy != "freeze":
        found.append("draws_a_view")
    if strategy != "scratch":
        found.append("pretrained")
    return found
