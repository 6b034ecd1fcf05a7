"""A backbone with one linear head, or one per version (joint training)."""

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from leco.ontology.version import Version


def auxiliary(version: str) -> str:
    """The key of a version's auxiliary logits, where a network has such; no version can be called so."""
    return f"{version}\nauxiliary"


class Network(nn.Module):
    """The paper's f and g: features, and a linear classifier for each version that has a head.

    The last version is the one the network is for.
    """

    def __init__(self, backbone: nn.Module, versions: Sequence[Version]) -> None:
        super().__init__()
        self.backbone = backbone
        self.versions = tuple(version.name for version in versions)
        features = int(backbone.num_features)  # type: ignore[arg-type]
        # A list, since version names may hold dots, which a ModuleDict refuses.
        self.heads = nn.ModuleList(nn.Linear(features, len(version)) for version in versions)
        for head in self.heads:
            assert isinstance(head, nn.Linear)
            nn.init.xavier_normal_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Logits (n, c) for each version that has a head."""
        features = self.backbone(inputs)
        return {version: head(features) for version, head in zip(self.versions, self.heads, strict=True)}

    def on(self, backbone: nn.Module) -> "Network":
        """The same heads, not copies of them, on another backbone."""
        other = copy.copy(self)
        other._modules = {**self._modules, "backbone": backbone}
        return other
