"""All settings of a training, in parts, nested as in `experiment.yaml`: `training.optimiser.learning_rate`.

Each part is frozen, keyword-only, and passed as a whole to the code that uses it. Nothing here imports torch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from leco.errors import nearest
from leco.parts import LearningRates, Part, WeightDecays, as_text

if TYPE_CHECKING:
    from leco.methods.method import Method

Strategy = Literal["finetune", "freeze", "scratch", "random", "lp-ft"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Budget = Literal["paper", "small", "features"]
DEFAULT_BUDGET: Budget = "paper"
Precision = Literal["auto", "32-true", "32-tf32", "bf16-mixed", "16-mixed"]
WEIGHTS = ("random", "pretrained", "download")  # or a file
WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


class NetworkSettings(Part):
    """The network, and the weights it starts from."""

    backbone: str = "wrn-28-2"
    """Name of a backbone: `wrn-DEPTH-WIDTH` (`wrn-28-2-released` as in the paper's code), any timm model, or `linear`,
    `roots` and `mlp` for feature vectors. `NAME+mlp` and `NAME+roots` put these on the features of a timm model."""

    weights: Annotated[str, BeforeValidator(as_text)] = "random"
    """Weights that the backbone starts from. `random`; `pretrained`: the published ones, if they are on this machine
    (in an installed package or timm's cache); `download`: the same, fetched from the Hugging Face hub if necessary; or
    a file (.safetensors, .pth)."""

    norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.001
    """Momentum of BatchNorm's statistics. FixMatch's 0.001 needs thousands of steps."""

    embed: bool = False
    """Freeze the pretrained backbone, and train heads on its features, which are computed once and stored. For
    `NAME+mlp`, the hidden layer is trained, too. With `frozen_layers`, only these layers are frozen, and those above
    are trained on their output for each image."""

    frozen_norm: bool = False
    """Freeze BatchNorm's statistics; for pretrained networks and few labels."""

    frozen_layers: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the backbone's layers, from the input on, whose weights are frozen. Training is up to twice as fast."""

    lora: Annotated[int, Field(ge=0, le=1_024)] = 0
    """Rank of low-rank adapters (LoRA) that are trained in place of the backbone's weights, for the linear layers that
    vision transformers call; 0 trains the weights. Needs `pip install 'leco[lora]'`."""

    precision: Precision = "32-true"
    """Precision of forward and backward passes. `bf16-mixed` and `16-mixed` compute layers in half precision and losses
    in float32; `16-mixed` scales gradients, and is for GPUs. `32-tf32` lets GPUs round the factors of matrix
    products. `auto` is the fastest that the GPU was designed for, and `32-true` on CPUs."""

    recompute: bool = False
    """Keep only the inputs of the backbone's blocks, and compute the rest again for the backward pass (activation
    checkpointing): the same results with a fraction of the memory, for another forward pass."""

    shard: bool = False
    """Divide the weights, their gradients and averages, and the optimiser's state among the processes of `torchrun`
    (FSDP2), for backbones that are too large for one GPU. Otherwise each process has all of them (DDP)."""

    compile: bool = False
    """Compile forward and backward passes of training with `torch.compile`: faster steps, equal up to rounding, after a
    start-up of up to a minute or more for each stage. Needs a C++ compiler on CPUs and Triton on GPUs."""

    @model_validator(mode="after")
    def _words_or_file(self) -> Self:
        if self.weights not in WEIGHTS and not self.weights.endswith(WEIGHT_SUFFIXES):
            kinds = f"one of {', '.join(WEIGHTS)}, or a file ({', '.join(WEIGHT_SUFFIXES)})"
            raise ValueError(f"weights: {self.weights!r} is not {kinds}{nearest(self.weights, WEIGHTS)}")
        return self

    @model_validator(mode="after")
    def _embeds_with_given_weights(self) -> Self:
        if self.embed and self.weights == "random":
            raise ValueError("embed: needs pretrained weights; set weights to pretrained, download or a file")
        if self.embed and self.frozen_layers and "+" in self.backbone:
            raise ValueError(
                f"frozen_layers: {self.frozen_layers:g} would train layers below the top of {self.backbone}; name the "
                "backbone alone, or set it to 0"
            )
        if self.embed and self.lora:
            raise ValueError(f"lora: {self.lora} would train the backbone, which `embed` keeps as it is; set it to 0")
        return self

    def ignored(self, method: "Method", strategy: str) -> tuple[str, ...]:
        """Weights to start from, if the network starts from a previous one; ways to train a backbone that is frozen."""
        names = [] if strategy == "scratch" or self.embed else ["weights"]
        return (*names, "recompute", "shard") if strategy == "freeze" or self.embed else tuple(names)


class OptimiserSettings(Part):
    """The optimiser and its learning-rate schedule."""

    name: str = "sgd"
    """Name of a registered optimiser."""

    learning_rate: LearningRates = (0.06,)
    """Initial learning rate. If there are several, each period keeps the one that is best on validation."""

    finetune_learning_rate: LearningRates | None = None
    """Learning rates of periods that start from the previous one, if they differ."""

    weight_decay: WeightDecays = 5e-4
    """Weight decay. If there are several, each period keeps the one that is best on validation, along with its learning
    rate."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of `sgd`; the first beta of `adamw`."""

    nesterov: bool = False
    """Nesterov momentum for `sgd`."""

    schedule: str = "cosine"
    """Name of a registered learning-rate schedule; `cosine` is FixMatch's, `poly` HRNet's, and `half-cosine` ends at
    zero."""

    warm_up: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of the steps over which the learning rate first grows from zero."""

    head_factor: Annotated[float, Field(gt=0, le=1_000)] = 1.0
    """Learning rate of the heads, as a multiple of the backbone's."""

    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Learning rate of each layer of the backbone, as a multiple of that of the layer above it."""

    clip: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Largest norm of the gradient; 0 turns clipping off."""

    @property
    def weight_decays(self) -> tuple[float, ...]:
        """All weight decays; a stage has one."""
        return self.weight_decay if isinstance(self.weight_decay, tuple) else (self.weight_decay,)

    @model_validator(mode="after")
    def _momentum_for_nesterov(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov: needs a momentum above 0")
        return self


class AverageSettings(Part):
    """The exponential moving average of the weights, which is the model that is evaluated."""

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of the average; 0 turns it off."""

    warm_up: bool = True
    """Let the decay grow from 0.1 over the first steps."""

    norm: bool = False
    """Average BatchNorm's statistics along with the weights instead of taking those of the last steps."""


class BatchSettings(Part):
    """Number of steps, and samples per step."""

    steps: Annotated[int, Field(ge=1, le=10**9)] = 160_000
    """Training steps of every stage."""

    size: Annotated[int, Field(ge=4, le=2**16)] = 128
    """Samples per step; with history, half of them are history (K = M)."""

    evaluate_every: Annotated[int, Field(ge=1)] = 1_000
    """Steps between two evaluations on validation; the best model is kept."""

    parts: Annotated[int, Field(ge=1)] = 1
    """Number of parts of a batch that go through the network one after the other, to save memory (gradient
    accumulation). Gradients are those of the whole batch, but BatchNorm, unless frozen, normalises each part by itself.
    If memory runs out, more parts are made in any case."""

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.size % 2:
            raise ValueError(f"size: must be even, not {self.size}: half of a batch is history")
        if self.parts > self.size // 2:
            raise ValueError(f"parts: must be at most {self.size // 2}, half of the batch, not {self.parts}")
        return self


class ViewSettings(Part):
    """Random views of images."""

    crop: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Smallest share of an image's area that a random crop shows, for pretrained networks; 0 shifts and distorts images
    as on CIFAR."""

    size: Annotated[int, Field(ge=0, le=2_048)] = 0
    """Side of random crops in pixels; 0 is that of the images. Smaller crops are faster, and objects in them appear as
    large as in whole images, since a crop is enlarged."""

    cutout: bool = True
    """Grey out a square of half the side in strong views, as on CIFAR. The released code does not do so on iNat."""

    whole: bool = False
    """Evaluate the whole middle square of an image of iNat, as the released code does; by default the centre of that
    square, seven eighths of its side."""

    resize: Annotated[int, Field(ge=0, le=2_048)] = 0
    """Side in pixels that images are scaled to after all other views; 0 leaves them as they are. Pretrained networks
    recognise more in small images that are enlarged."""


class LossSettings(Part):
    """The loss of the newest labels."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of a newest label that is spread over all classes. Beyond the paper; for pretrained networks."""

    adjust: Annotated[float, Field(ge=0, le=2), AfterValidator(abs)] = 0.0
    """Add `adjust` × log class frequency, of the new samples or of the history, to the logits in the loss (logit
    adjustment). The network then predicts all classes with the same prior, as mean per-class accuracy expects. Beyond
    the paper; for classification."""


class PseudoLabelSettings(Part):
    """Pseudo-labels of the history."""

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Confidence above which `pl` and `fixmatch` keep a pseudo-label, after conditioning."""

    soft: bool = False
    """Soft targets for `pl` and `fixmatch`, as the paper writes them; hard ones, as they are coded, by default."""

    st_soft_masked: bool = False
    """Sum the divergence of `st-soft` over the classes that the old label allows, as it is coded; by default over all
    classes, as the paper writes it. `/cond` does so either way."""

    balance: bool = False
    """Shift the teacher's logits so that its predictions have the class frequencies of the new samples.
    Beyond the paper; gains half a point on CUB."""

    def ignored(self, method: "Method", strategy: str) -> tuple[str, ...]:
        """Only the settings of the method's own kind of pseudo-label matter; registered ones may use any."""
        names = ["threshold", "soft"] if method.pseudo in ("none", "st-hard", "st-soft") else []
        names += [] if method.needs_teacher else ["balance"]
        unmasked = method.pseudo in ("none", "st-hard", "pl", "fixmatch") or method.refine == "cond"
        names += ["st_soft_masked"] if unmasked else []
        return tuple(names)


class HistorySettings(Part):
    """Coarse labels of the history."""

    coarse_on_new: bool = True
    """Also apply `joint` and `lpl` to the new samples, through the coarse labels that theirs imply.
    Off in segmentation (appendix C of the paper)."""

    mask_contradictions: bool = False
    """Drop old labels that contradict the sample's newest label; needs both, as benchmarks have."""

    guess_contradictions: bool = False
    """Keep the pseudo-labels of what `mask_contradictions` drops, as appendix C of the paper can be read."""

    sums: bool = False
    """Sum `joint` and `lpl` over new samples and history, per new sample, as the paper writes them; by default they are
    averaged over both, as coded, which halves them."""

    def ignored(self, method: "Method", strategy: str) -> tuple[str, ...]:
        """Settings of old labels, for methods that do not use them."""
        names = ["coarse_on_new"] if method.coarse == "ce" else []
        names += ["sums"] if method.coarse == "ce" else []
        names += ["mask_contradictions"] if method.coarse == "ce" and method.pseudo == "none" else []
        names += ["guess_contradictions"] if method.pseudo == "none" or not self.mask_contradictions else []
        return tuple(names)


class TransferSettings(Part):
    """Details of the transfer between periods."""

    head_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of `lp-ft` that train the heads only; a tenth of all steps by default."""

    draws_per_view: Annotated[int, Field(ge=1)] = 4
    """Number of draws of a sample that share one cached view, with `freeze`. Higher values are faster and, with fewer
    distinct views, slightly worse."""

    max_views: Annotated[int, Field(ge=1)] = 256
    """Largest number of cached views of a sample, with `freeze`; then more draws share a view."""

    def ignored(self, method: "Method", strategy: str) -> tuple[str, ...]:
        """Settings of other strategies."""
        names = [] if strategy == "lp-ft" else ["head_steps"]
        names += [] if strategy == "freeze" else ["draws_per_view", "max_views"]
        return tuple(names)


class SegmentationSettings(Part):
    """Crops and windows of segmentation (appendix C of the paper)."""

    crop: Annotated[int, Field(ge=8, le=4_096)] = 720
    """Side of the square crops that are trained on."""

    base_size: Annotated[int, Field(ge=8, le=16_384)] = 2_200
    """Length of an image's longer edge before it is scaled by a random factor."""

    scale: tuple[float, float] = (0.5, 2.1)
    """Range of that factor."""

    window: Annotated[int, Field(ge=8)] = 720
    """Side of the sliding windows of inference, which overlap by a third."""

    unevaluated: bool = True
    """Train on pixels of classes that are not evaluated, 8 of Mapillary 2.0's 124, too."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.scale[0] <= self.scale[1] <= 10:
            raise ValueError(f"scale: must be two positive factors up to 10, the smaller first, not {self.scale}")
        return self


class FinishSettings(Part):
    """Changes to a trained network before it is evaluated and stored. All are beyond the paper."""

    head: str = "trained"
    """`trained`, or a registered head that is fitted to the features of all samples: `linear`, `gaussian`,
    `linear+gaussian`, their average, or `best`, which chooses among these and `linear` without old labels by
    cross-validation. For classification with few labels per class and good features."""

    adjust: Annotated[float, Field(ge=0, le=2), AfterValidator(abs)] = 0.0
    """Subtract `adjust` × log class frequency from the logits (logit adjustment), for long-tailed labels."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.head != "trained" and self.adjust:
            raise ValueError(
                f"adjust: {self.adjust:g} is for trained heads; a {self.head} head does not prefer "
                "frequent classes; set it to 0"
            )
        return self


class Settings(Part):
    """All settings of a training. Defaults are the paper's for CIFAR (appendix E)."""

    network: NetworkSettings = NetworkSettings()
    optimiser: OptimiserSettings = OptimiserSettings()
    average: AverageSettings = AverageSettings()
    batches: BatchSettings = BatchSettings()
    views: ViewSettings = ViewSettings()
    loss: LossSettings = LossSettings()
    pseudo_labels: PseudoLabelSettings = PseudoLabelSettings()
    history: HistorySettings = HistorySettings()
    transfer: TransferSettings = TransferSettings()
    segmentation: SegmentationSettings = SegmentationSettings()
    finish: FinishSettings = FinishSettings()

    @model_validator(mode="after")
    def _adjusted_once(self) -> Self:
        if self.loss.adjust and self.finish.adjust:
            raise ValueError(
                f"finish.adjust: {self.finish.adjust:g}, but loss.adjust: {self.loss.adjust:g} already makes the "
                "network predict all classes with the same prior; set one of them to 0"
            )
        return self

    @model_validator(mode="after")
    def _head_steps_fit(self) -> Self:
        if self.transfer.head_steps >= self.batches.steps:
            raise ValueError(
                f"transfer.head_steps: must be fewer than the {self.batches.steps} steps, "
                f"not {self.transfer.head_steps}"
            )
        return self

    def used_by(self, method: "Method", strategy: str) -> Self:
        """Return the settings with those that a stage ignores reset to their defaults."""
        parts = {name: getattr(self, name).used_by(method, strategy) for name in PARTS}
        return self.model_copy(update=parts)

    def change(self, **parts: Mapping[str, Any]) -> Self:
        """Return the settings with some of them changed, by part; the values must be valid.

        >>> Settings().change(batches={"steps": 10}).batches.steps
        10
        """
        return self.model_copy(
            update={name: getattr(self, name).model_copy(update=dict(values)) for name, values in parts.items()}
        )

    @property
    def learning_rate(self) -> float:
        """The learning rate of a stage."""
        (rate,) = self.optimiser.learning_rate
        return rate


PARTS: dict[str, type[Part]] = {
    name: field.annotation  # type: ignore[misc]
    for name, field in Settings.model_fields.items()
}
NAMES = tuple(f"{part}.{name}" for part, kind in PARTS.items() for name in kind.model_fields)
