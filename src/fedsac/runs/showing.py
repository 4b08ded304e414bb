"""A result as a notebook shows it, and as a tidy table."""

from html import escape
from typing import Any, Protocol

from fedsac.config import Config
from fedsac.contributions.base import Contributions
from fedsac.core.metrics import display_name
from fedsac.core.module_layout import AnyLayout
from fedsac.errors import FedsacError
from fedsac.runs.labels import mean_log_loss

PER = ("client", "round")
MAX_ROWS = 30  # of clients that a notebook shows


class Shown(Protocol):
    """What is shown of a `Result`."""

    @property
    def config(self) -> Config: ...

    @property
    def clients(self) -> tuple[str, ...]: ...

    @property
    def samples(self) -> tuple[int, ...]: ...

    @property
    def contributions(self) -> Contributions: ...

    @property
    def records(self) -> tuple[dict[str, Any], ...]: ...

    @property
    def reputations(self) -> tuple[float, ...] | None: ...

    @property
    def layout(self) -> AnyLayout: ...

    @property
    def reported_on(self) -> str: ...

    @property
    def last(self) -> dict[str, Any]: ...

    @property
    def rewards(self) -> tuple[float, ...]: ...

    @property
    def inside_bcf(self) -> tuple[bool, ...]: ...


def one_line(result: Shown) -> str:
    """What a run was, and what came of it."""
    c, last = result.config, result.last
    gamma = "-" if last["gamma"] is None else f"{last['gamma']:.2f}"
    return (
        f"<Result: {c.method} on {c.data}, {c.scene}: {len(result.clients)} clients, round {last['round']}, "
        f"{c.seeds_named}; gamma {gamma}, in BCF {last['bcf']:.0%}, best reward {last['accuracy']['max']:.4f} "
        f"({display_name(c.metric)})>"
    )


def html(result: Shown) -> str:
    """The same, with a table of the clients."""
    heads = ("client", "samples", "alone: V", f"alone: {result.reported_on}", "reputation", "neurons", "reward", "BCF")
    columns = (
        result.clients,
        result.samples,
        [f"{c:.4f}" for c in result.contributions.validation],
        [f"{c:.4f}" for c in result.contributions.test],
        ["-"] * len(result.clients) if result.reputations is None else [f"{r:.1f}" for r in result.reputations],
        [f"{n}/{result.layout.neurons}" for n in result.last["neurons"]],
        [f"{reward:.4f}" for reward in result.rewards],
        ["yes" if inside else "no" for inside in result.inside_bcf],
    )
    rows = list(zip(*columns, strict=True))
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows[:MAX_ROWS])
    more = "" if len(rows) <= MAX_ROWS else f"<p>... and {len(rows) - MAX_ROWS} more clients</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    said = escape(one_line(result).strip("<>"))
    return f"<p>{said}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def frame(result: Shown, per: str) -> Any:
    """A pandas DataFrame: a row for each round and client, or for each round."""
    if per not in PER:
        raise FedsacError(f"per must be {' or '.join(PER)}, not {per!r}")
    try:
        import pandas
    except ImportError:
        raise FedsacError("to_frame needs pandas: pip install pandas") from None
    c = result.config
    same = {"method": c.method, "seed": c.seed, "metric": c.metric}
    rows = [
        {**same, "round": record["round"], **own}
        for record in result.records
        for own in (_of_clients(result, record) if per == "client" else [_of_round(record)])
    ]
    return pandas.DataFrame(rows)


def _of_round(record: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a round, under the names that `--log csv` gives them."""
    rewards = record["accuracy"] or dict.fromkeys(("max", "mean", "min"))
    return {
        **{name: record.get(name) for name in ("gamma", "gamma_limit", "gamma_attainable", "bcf", "alpha_bcf")},
        **{f"{which}_reward": rewards[which] for which in ("max", "mean", "min")},
        **{name: record.get(name) for name in ("mcg", "cgs")},
        "global_model": record["global_accuracy"],
        "log_loss": mean_log_loss(record),
        "global_log_loss": record.get("global_log_loss"),  # older versions' rounds have none
        **{f"bytes_{way}": record["bytes"][way] for way in ("down", "up")},
        "answered": len(record["answered"]),
    }


def _of_clients(result: Shown, record: dict[str, Any]) -> list[dict[str, Any]]:
    """What a round's record says of each client; None where a number does not exist, as without an evaluation."""
    count = len(result.clients)
    lists = {
        "reputation": record["reputations"],
        "neurons": record["neurons"],
        "parameters": record["parameters"],
        "reward": record["rewards"],
        "reward_validation": record["rewards_validation"],
        "log_loss": record.get("log_losses"),
    }
    columns = {name: [None] * count if values is None else values for name, values in lists.items()}
    # The log has all clients' losses, also of who did not answer, which nobody was told.
    answered, losses = set(record["answered"]), record["losses"] or [None] * count
    return [
        {
            "client": client,
            "samples": result.samples[i],
            "contribution": result.contributions.validation[i],
            "contribution_test": result.contributions.test[i],
            "answered": client in answered,
            "loss": losses[i] if client in answered else None,
            **{name: values[i] for name, values in columns.items()},
        }
        for i, client in enumerate(result.clients)
    ]
