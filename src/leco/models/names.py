"""Names of backbones that consist of two: `resnet50+mlp` is a hidden layer on the features of a resnet50."""

_PLUS = "+"


def trunk_of(backbone: str) -> str:
    """Return the part of a backbone that takes the inputs.

    >>> trunk_of("resnet50+mlp"), trunk_of("resnet50")
    ('resnet50', 'resnet50')
    """
    return backbone.partition(_PLUS)[0]


def top_of(backbone: str) -> str:
    """Return the part of a backbone that takes the features of the other; empty if there is none.

    >>> top_of("resnet50+mlp"), top_of("resnet50")
    ('mlp', '')
    """
    return backbone.partition(_PLUS)[2]
