"""Attack vectors by byzfl, an independent library, for a fixed set of honest steps: what tests/test_attacks_vectors.py
compares ours with. byzfl imports torchvision, so it lives in an environment of its own:

    python3 -m venv .bench/byzfl && .bench/byzfl/bin/pip install byzfl==0.0.11
    .bench/byzfl/bin/python benchmarks/byzfl_vectors.py > tests/golden/published/byzfl.json
"""

import json
from importlib.metadata import version

import byzfl
import numpy as np

CLIENTS, PARAMETERS = 7, 12


def main() -> None:
    steps = np.random.default_rng(16).normal(size=(CLIENTS, PARAMETERS)).round(3)
    attacks = {
        "sign-flip": byzfl.SignFlipping(),
        "ipm:2": byzfl.InnerProductManipulation(tau=2.0),
        "ipm:0.5": byzfl.InnerProductManipulation(tau=0.5),
        "alie:1.5": byzfl.ALittleIsEnough(tau=1.5),
        "alie:0.3": byzfl.ALittleIsEnough(tau=0.3),
        "mimic:1": byzfl.Mimic(epsilon=0),
        "mimic:3": byzfl.Mimic(epsilon=2),
    }
    vectors = {name: np.asarray(attack(steps)).tolist() for name, attack in attacks.items()}
    print(json.dumps({"byzfl": version("byzfl"), "steps": steps.tolist(), "vectors": vectors}))


if __name__ == "__main__":
    main()
