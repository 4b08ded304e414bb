"""Which runs each study has. Nothing here is carried out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedsac.config import Config
from fedsac.doors import METHODS
from fedsac.errors import FedsacError
from fedsac.paper.settings import SCENES, TABLE9, preset

DIR_SCENES = tuple(scene for scene in SCENES if scene.startswith("dir"))
DATA_SETS = ("cifar10", "fashion-mnist", "svhn")


@dataclass(frozen=True)
class Cell:
    """One data set and scene with so many clients: what one table is about."""

    data: str
    scene: str
    clients: int

    @property
    def title(self) -> str:
        """What `--only` looks in: "cifar10 dir:1.0 20"."""
        return f"{self.data} {self.scene} {self.clients}"

    @property
    def file(self) -> str:
        """The name of its files: "cifar10-pow", "cifar10-dir1.0-20"."""
        return f"{self.data}-{self.scene.replace(':', '')}" + ("" if self.clients == 10 else f"-{self.clients}")

    def training(self) -> dict[str, Any]:
        """Table 9's settings; a data set that the paper does not have keeps the package's defaults."""
        return preset("paper", self.data, self.scene) if self.data in TABLE9 else {}


@dataclass(frozen=True)
class Study:
    """All cells with all methods and seeds first_seed, first_seed + 1, ... `contribution_on` says which contributions
    methods know. `one_stack`: the runs of all cells train together and share one file. `curves`: every evaluated round
    is kept."""

    name: str
    columns: tuple[tuple[str, int], ...]  # data set and number of clients
    scenes: tuple[str, ...]
    methods: tuple[str, ...]
    first_seed: int
    seeds: int
    rounds: int
    contribution_on: str = "validation"
    eval_every: int = 10
    one_stack: bool = False
    curves: bool = False
    settings: tuple[tuple[str, Any], ...] = ()  # instead of those of Table 9

    @property
    def cells(self) -> list[Cell]:
        return [Cell(data, scene, clients) for data, clients in self.columns for scene in self.scenes]

    def configs(self, cell: Cell, **common: Any) -> list[Config]:
        """The runs of one cell; `common` settings (device, ...) go into every one."""
        settings = cell.training() | {"contribution_on": self.contribution_on} | dict(self.settings) | common
        return [
            Config(
                data=cell.data,
                scene=cell.scene,
                clients=cell.clients,
                method=method,
                seed=seed,
                rounds=self.rounds,
                eval_every=self.eval_every,
                **settings,
            )
            for method in self.methods
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        ]

    def parts(self, cells: Sequence[Cell], **common: Any) -> Iterator[tuple[str, list[Config]]]:
        """What is carried out at once: the name of its files, and its runs."""
        if self.one_stack:
            yield self.name, [config for cell in cells for config in self.configs(cell, **common)]
            return
        for cell in cells:
            yield cell.file, self.configs(cell, **common)

    def selected(self, only: str) -> list[Cell]:
        """The cells whose title has this text in it."""
        found = [cell for cell in self.cells if only in cell.title]
        if not found:
            raise FedsacError(f"no cell of {self.name} has {only!r} in {', '.join(cell.title for cell in self.cells)}")
        return found


STUDIES = {
    study.name: study
    for study in (
        Study(
            name="methods",
            columns=tuple((data, 10) for data in DATA_SETS),
            scenes=SCENES,
            methods=tuple(METHODS),
            first_seed=200,
            seeds=10,
            rounds=100,
        ),
        Study(
            name="judge",
            columns=(*((data, 10) for data in DATA_SETS), ("cifar10", 20), ("fashion-mnist", 20)),
            scenes=SCENES,
            methods=(
                *("fedsac-plus", "fedsac-plus-no-server", "fedavg-server", "fedavg"),
                *("fedsac", "fedrac-server", "aequa", "server-alone"),
            ),
            first_seed=300,
            seeds=10,
            rounds=200,
        ),
        Study(
            name="long",
            columns=(("cifar10", 10),),
            scenes=DIR_SCENES,
            methods=("fedsac", "fedsac-over-n", "fedavg", "fedrac"),
            first_seed=0,
            seeds=3,
            rounds=3000,
            contribution_on="test",
            one_stack=True,
            curves=True,
        ),
        *(
            Study(
                name=f"networks-{network.partition(':')[0]}",
                columns=(("cifar10", 10),),
                scenes=("pow", "cla", "dir:1.0", "dir:3.0"),
                methods=("fedsac", "fedsac-plus", "fedavg", "fedrac", "standalone"),
                first_seed=0,
                seeds=3,
                rounds=rounds,
                settings=(("network", network), ("lr", 0.05), ("local_steps", 20), ("importance_every", 5)),
            )
            for network, rounds in (("cnn", 200), ("resnet18:16", 100))
        ),
    )
}
