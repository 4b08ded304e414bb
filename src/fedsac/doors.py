"""Everything that can be named in a config or on the command line, and where it is defined.

A name is one of the built-in ones below, or `module:attribute` for one of your own, found on PYTHONPATH. Some names
take a parameter behind a colon: `dir:1.0`, `absent:0.2`, `mymodule:myscene:3`. Only what is named is imported.
"""

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedsac.errors import FedsacError, did_you_mean


@dataclass(frozen=True)
class Entry:
    """A built-in: `target` is module:attribute in this package, `what` it does in a line, `citation` its origin.

    `parameter` says what stands behind the colon, a number above 0 and at most `most`; None: nothing may.
    """

    target: str
    what: str
    citation: str = ""
    parameter: str | None = None
    most: float = math.inf


@dataclass(frozen=True)
class Door:
    """One kind of thing that can be named."""

    kind: str
    entries: dict[str, Entry]
    page: str  # in docs/: how to write one's own

    def parse(self, text: str) -> tuple[str, str | None]:
        """What is named, and the parameter behind it. Nothing is imported.

        >>> SCENES.parse("dir:0.5"), SCENES.parse("mine:halves:3")
        (('dir', '0.5'), ('mine:halves', '3'))
        """
        name, colon, rest = text.partition(":")
        if name in self.entries:
            if colon and self.entries[name].parameter is None:
                raise FedsacError(f"{self.kind} {name} takes no parameter; leave :{rest} out")
            return name, rest if colon else None
        attribute, second, parameter = rest.partition(":")
        if not colon or not name or not attribute:
            hint = did_you_mean(name, self.entries)
            raise FedsacError(f"no {self.kind} {text!r}{hint}; there are {self.names()}, or module:attribute")
        if second and not any(entry.parameter for entry in self.entries.values()):
            raise FedsacError(f"{self.kind} {name}:{attribute} takes no parameter; leave :{parameter} out")
        return f"{name}:{attribute}", parameter if second else None

    def spelled(self, text: str) -> str:
        """The text with its parameter checked and written in one way: `dir:1` and `dir:1.0` are the same setting.

        >>> SCENES.spelled("dir:1")
        'dir:1.0'
        """
        name, value = self.parse(text)
        if name not in self.entries or self.entries[name].parameter is None:
            return text
        try:
            number = float(value or "")
        except ValueError:
            number = math.nan
        most = self.entries[name].most
        if not 0 < number <= most or math.isinf(number):
            bound = "" if math.isinf(most) else f" and at most {most:g}"
            raise FedsacError(f"{self.kind} {text!r}: {name} needs a number above 0{bound}, as in {name}:0.5")
        return f"{name}:{number!r}"

    def resolve(self, text: str) -> Any:
        """The object that is named, imported.

        >>> METRICS.resolve("accuracy").__name__
        'accuracy'
        """
        name, _ = self.parse(text)
        target = f"fedsac.{self.entries[name].target}" if name in self.entries else name
        module, _, attribute = target.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), attribute)):
            hint = did_you_mean(module, self.entries)  # of `dri:1`, say
            raise FedsacError(f"{self.kind} {text!r} is neither a name{hint} nor module:attribute (docs/{self.page})")
        try:
            named = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, SyntaxError) as error:
            raise FedsacError(f"{self.kind} {text!r} cannot be imported: {error}; is it on PYTHONPATH?") from None
        if not callable(named):
            raise FedsacError(f"{self.kind} {text!r} must be a function or a class, not {type(named).__name__}")
        return named

    def names(self) -> str:
        """The built-in names as a person would type them."""
        return ", ".join(f"{n}:{e.parameter}" if e.parameter else n for n, e in self.entries.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)


_FEDSAC = "Wang et al., KDD 2024"
METHODS = Door(
    "method",
    {
        "standalone": Entry("methods.standalone:Standalone", "nobody shares anything", "-"),
        "fedavg": Entry("methods.fedavg:FedAvg", "everyone gets the mean model", "McMahan et al., AISTATS 2017"),
        "qffl": Entry(
            "methods.qffl:QFFL", "the mean model, clients with a higher loss weigh more", "Li et al., ICLR 2020"
        ),
        "cffl": Entry("methods.cffl:CFFL", "gradients by validation accuracy and data size", "Lyu et al., 2020"),
        "cgsv": Entry(
            "methods.cgsv:CGSV", "gradients by similarity to the common direction", "Xu et al., NeurIPS 2021"
        ),
        "fedave": Entry("methods.fedave:FedAVE", "gradients by accuracy and likeness of the data", "Wang et al., 2024"),
        "rffl": Entry("methods.rffl:RFFL", "gradients by reputation, the lowest removed", "Xu and Lyu, 2020"),
        "iafl": Entry("methods.iafl:IAFL", "as many of the others' updates as earned", "Wu et al., ICLR 2024"),
        "fedrac": Entry(
            "methods.fedrac:FedRAC",
            "submodels by validation accuracy, rarely trained neurons first",
            "CVPR 2026",
        ),
        "aequa": Entry(
            "methods.aequa:Aequa", "nested widths of one slimmable model, by contribution", "Tastan et al., ICML 2025"
        ),
        "fedsac": Entry("methods.fedsac:FedSAC", "submodels by importance", _FEDSAC),
        "fedsac-no-allocation": Entry(
            "methods.ablations:NoAllocation", "FedSAC with neurons in random order (Table 3)", _FEDSAC
        ),
        "fedsac-no-aggregation": Entry(
            "methods.ablations:NoAggregation", "FedSAC with FedAvg's mean (Table 3)", _FEDSAC
        ),
        "fedsac-over-n": Entry("methods.ablations:OverN", "FedSAC, updates divided by N: a reading of Eq. 9", _FEDSAC),
        "fedsac-plus": Entry(
            "methods.fedsac_plus:FedSACPlus", "submodels calibrated to targets inside BCF", "this project"
        ),
        "server-alone": Entry("methods.server_rows:ServerAlone", "the server trains on V by itself", "-"),
        "fedavg-server": Entry("methods.server_rows:FedAvgServer", "FedAvg and SGD steps on half of V", "-"),
        "fedavg-v-client": Entry("methods.server_rows:FedAvgVClient", "FedAvg with V as one more client", "-"),
        "fedsac-server": Entry("methods.server_rows:FedSACServer", "FedSAC and SGD steps on half of V", "-"),
        "fedrac-server": Entry("methods.server_rows:FedRACServer", "FedRAC and SGD steps on half of V", "-"),
        "fedsac-plus-no-server": Entry(
            "methods.server_rows:FedSACPlusNoServer", "FedSAC+ without SGD steps on V", "this project"
        ),
    },
    "adding-a-method.md",
)

SCENES = Door(
    "scene",
    {
        "pow": Entry("data.scenes:power_law", "sizes along a power law"),
        "cla": Entry("data.scenes:class_imbalance", "unequal numbers of classes"),
        "dir": Entry("data.scenes:dirichlet", "Dirichlet shares of classes, near-equal sizes", "", "ALPHA"),
        "dir-class": Entry(
            "data.scenes:dirichlet_by_class", "each class spread over the clients by Dirichlet", "", "ALPHA"
        ),
        "iid": Entry("data.scenes:iid", "equal shares at random"),
    },
    "extending.md",
)

DATA = Door(
    "data set",
    {
        "digits": Entry("data.catalogue:digits", "1,797 images 8x8 of digits, 10 classes (embedded)"),
        "fashion-mnist": Entry("data.catalogue:fashion_mnist", "60,000 + 10,000 images 28x28 of clothes, 10 classes"),
        "cifar10": Entry("data.catalogue:cifar10", "50,000 + 10,000 colour images 32x32, 10 classes"),
        "svhn": Entry("data.catalogue:svhn", "73,257 + 26,032 colour images 32x32 of house numbers, 10 classes"),
        "mnist": Entry("data.catalogue:mnist", "60,000 + 10,000 images 28x28 of digits, 10 classes"),
    },
    "extending.md",
)

CONTRIBUTIONS = Door(
    "contribution",
    {
        "standalone": Entry("contributions.standalone:standalone", "the score of a model that a client trains alone"),
        "leave-one-out": Entry("contributions.leave_one_out:measure", "what the common model loses without the client"),
        "shapley": Entry(
            "contributions.shapley:measure",
            "Shapley values of FedAvg's rounds",
            "GTG: Liu et al., ACM TIST 2022",
        ),
        "cosine": Entry(
            "contributions.cosine:measure",
            "cosine similarity of a client's updates to the aggregated ones",
            "Xu et al., NeurIPS 2021",
        ),
        "shapfed": Entry(
            "contributions.shapfed:measure",
            "Shapley values for each class, in the last layer alone",
            "CSSV: Tastan et al., IJCAI 2024",
        ),
    },
    "extending.md",
)

METRICS = Door(
    "metric",
    {
        "accuracy": Entry("core.metrics:accuracy", "share of samples whose class is right"),
        "balanced-accuracy": Entry("core.metrics:balanced_accuracy", "mean recall over the classes"),
        "macro-f1": Entry("core.metrics:macro_f1", "mean F1 over the classes"),
        "auc": Entry("core.metrics:auc", "area under the ROC curve, one class against the rest, mean"),
    },
    "extending.md",
)

MODELS = Door(
    "model",
    {
        "cnn": Entry("models.shipped.cnn:cnn", "two convolutions and two hidden layers", "CGSV, FedAVE"),
        "resnet18": Entry(
            "models.shipped.resnet:resnet18", "ResNet-18, 3 x 3 stem, batch norm", "He et al., CVPR 2016", "WIDTH"
        ),
        "resnet18-gn": Entry(
            "models.shipped.resnet:resnet18_groupnorm", "ResNet-18 with group norm, two groups", "FedRAC", "WIDTH"
        ),
        "vit-tiny": Entry(
            "models.shipped.transformer:vit_tiny", "ViT, 12 layers of width 192", "Dosovitskiy et al., ICLR 2021"
        ),
        "text": Entry("models.shipped.transformer:text", "transformer, 2 layers of width 128", "-", "TOKENS"),
        "text-lora": Entry(
            "models.shipped.transformer:text_lora",
            "text with LoRA adapters of rank 8",
            "Hu et al., ICLR 2022",
            "TOKENS",
        ),
    },
    "any-network.md",
)
NETWORKS = Door(
    "network",
    {
        "mlp": Entry("models.mlp:mlp", "perceptron with ReLU; --hidden says how many neurons in each layer"),
        **MODELS.entries,
    },
    "extending.md",
)

BEHAVIOURS = Door(
    "behaviour",
    {
        "absent": Entry("clients.behaviour:absent", "misses a round with this probability", "", "PROBABILITY", most=1),
        "late": Entry(
            "clients.behaviour:late",
            "sends its previous round's model with this probability",
            "",
            "PROBABILITY",
            most=1,
        ),
    },
    "extending.md",
)

ATTACKS = Door(
    "attack",
    {
        "zero": Entry("attacks.free_riders:ZeroUpdate", "sends back what it received"),
        "stale": Entry("attacks.free_riders:StaleModel", "sends an old model", "", "ROUNDS"),
        "random": Entry("attacks.free_riders:RandomModel", "sends weights from U[-1, 1]", "Xu and Lyu, 2020"),
        "delta": Entry("attacks.free_riders:DeltaWeights", "repeats the model's last step", "Lin et al., 2019"),
        "disguise": Entry("attacks.free_riders:GaussianDisguise", "adds Gaussian noise", "Fraboni et al., 2021"),
        "late-switch": Entry("attacks.free_riders:LateSwitch", "honest until its contribution is measured"),
        "lazy": Entry("attacks.adaptive:Lazy", "trains few steps and sends them longer", "", "STEPS"),
        "part-time": Entry("attacks.adaptive:PartTime", "trains in some rounds, is away in others", "", "SHARE"),
        "replay": Entry("attacks.adaptive:Replay", "trains at times, and repeats its own step", "", "ROUNDS"),
        "claim": Entry("attacks.scores:Claim", "says that its contribution is 1.0"),
        "self-report": Entry("attacks.scores:SelfReport", "claims a contribution of 1.0 to a server that believes it"),
        "borrow": Entry("attacks.scores:Borrow", "hands in another's model as trained alone"),
        "borrow-noised": Entry("attacks.scores:BorrowNoised", "hands in another's model under noise", "", "DEVIATION"),
        "borrow-global": Entry("attacks.scores:BorrowGlobal", "rejoins with an old common model"),
        "launder": Entry("attacks.scores:Launder", "rejoins with its own reward"),
        "launder-tuned": Entry(
            "attacks.scores:LaunderTuned", "rejoins with its own reward, trained further", "", "EPOCHS"
        ),
        "borrow-distilled": Entry(
            "attacks.distilling:BorrowDistilled", "hands in a student of another's model", "", "MIXTURES"
        ),
        "launder-distilled": Entry(
            "attacks.distilling:LaunderDistilled", "rejoins with a student of its own reward", "", "MIXTURES"
        ),
        "inflate": Entry("attacks.scores:Inflate", "sends the others' mean step", "ACE: arXiv 2405.20975"),
        "slander": Entry("attacks.scores:Slander", "takes away the step of the one with the most data"),
        "hoard": Entry("attacks.hoarding:Hoard", "keeps every parameter it ever received"),
        "pool": Entry("attacks.hoarding:Pool", "a coalition puts its rewards together"),
        "hoard-together": Entry("attacks.hoarding:HoardTogether", "a coalition keeps all it ever received"),
        "regrow": Entry("attacks.hoarding:Regrow", "refills missing neurons and trains them", "", "EPOCHS"),
        "fine-tune": Entry("attacks.hoarding:FineTune", "trains its reward further, as anybody may", "", "EPOCHS"),
        "sybils": Entry("attacks.identities:Sybils", "one data set under several names", "", "NAMES"),
        "cut-up": Entry("attacks.identities:CutUp", "a data set in parts, each under a name", "", "PARTS"),
        "merge": Entry("attacks.identities:Merge", "two data sets under one name"),
        "label-flip": Entry("attacks.poisoned_data:LabelFlip", "trains on turned labels"),
        "backdoor": Entry("attacks.poisoned_data:Backdoor", "a trigger for a class", "Gu et al., 2017", "SHARE"),
        "sign-flip": Entry("attacks.poisoning:SignFlip", "the opposite of the mean step"),
        "rescale": Entry("attacks.poisoning:Rescale", "its step made longer", "Bagdasaryan et al., 2020", "FACTOR"),
        "alie": Entry("attacks.poisoning:LittleIsEnough", "a little is enough", "Baruch et al., 2019", "DEVIATIONS"),
        "ipm": Entry("attacks.poisoning:InnerProduct", "inner product manipulation", "Xie et al., 2020", "FACTOR"),
        "mimic": Entry("attacks.poisoning:Mimic", "copies an honest client", "Karimireddy et al., 2022", "WHOM"),
        "sole-holder": Entry("attacks.poisoning:SoleHolder", "poisons what it alone holds", "", "FACTOR"),
    },
    "attacks.md",
)

LOGGERS = Door(
    "log",
    {
        "csv": Entry("runs.loggers.csvfile:CsvLogger", "rounds.csv and clients.csv in the run's folder"),
        "tensorboard": Entry("runs.loggers.tensorboard:TensorBoardLogger", "needs fedsac[tensorboard]"),
        "mlflow": Entry("runs.loggers.mlflow:MLflowLogger", "needs fedsac[mlflow]"),
    },
    "logging.md",
)

ALL = (METHODS, SCENES, DATA, CONTRIBUTIONS, METRICS, NETWORKS, BEHAVIOURS, ATTACKS, LOGGERS)
