"""FedSAC+: submodels calibrated to rewards inside bounded collaborative fairness. This project's own method.

    theta   <- theta + sum_i (theta_i - theta) mask_i / max(holders, f N)     damped: few holders move a parameter less
    theta   <- a few SGD steps of the server on one half of V                 so all parameters see all classes
    order    = neurons by importance on V, as in FedSAC
    target_i = accuracies inside BCF that follow the contributions: of lines that are nearly as fair, the one that
               gives most                                                      (targets.py)
    theta_i  = the prefix of that order whose accuracy on V's other half comes nearest to target_i   (calibration.py)

FedSAC with four of its options on; docs/fedsac-plus.md has the reasons, the measurements and what did not work.
"""

from dataclasses import dataclass

from fedsac.methods.fedsac import FedSAC


@dataclass(frozen=True)
class FedSACPlus(FedSAC):
    damping: float = 0.5
    server_steps: int = 20
    calibrated: bool = True
    generous: float = 0.005
