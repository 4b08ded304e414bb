"""The table at the end of a run: who contributed what, who was paid what."""

from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedsac.core.metrics import display_name
from fedsac.runs.labels import LABELS
from fedsac.runs.result import Result

MAX_CLIENT_ROWS = 60  # of the table; the page and the folder have all clients
EXPLAINED = {
    "last": "last: the last round, our headline",
    "selected": "selected: chosen on validation data alone",
    "best": "best: highest test gamma, the paper's rule",
}


def show(result: Result, console: Console | None = None, page: Path | None = None) -> None:
    console = console or Console(highlight=False, markup=False, emoji=False)
    config, metric = result.config, display_name(result.config.metric)
    about = f"{config.method} on {config.data}, {config.scene}: round {config.rounds}, {config.seeds_named}"
    about += config.conduct_named
    clients = Table(title=f"{about}, scored by {metric}")
    clients.add_column("client", overflow="fold")
    deciding = result.contributions.deciding
    # Eighty columns hold one value that decides: where another measure does, it stands in the place of alone:V.
    contributions = ("alone:V", "test") if deciding is None else ("decides", "alone")
    for head in ("samples", *contributions, "reput.", "neurons", "reward", "in BCF"):
        clients.add_column(head, justify="right", no_wrap=True)
    reputations = result.reputations or (None,) * len(result.clients)
    rows = zip(
        result.clients,
        result.samples,
        result.contributions.validation if deciding is None else deciding,
        result.contributions.test,
        reputations,
        result.last["neurons"],
        result.rewards,
        result.inside_bcf,
        strict=True,
    )
    for name, samples, decides, on_test, reputation, neurons, reward, inside in islice(rows, MAX_CLIENT_ROWS):
        clients.add_row(
            name,
            str(samples),
            f"{decides:.3f}",
            f"{on_test:.3f}",
            "-" if reputation is None else f"{reputation:.1f}",
            f"{neurons}/{sum(config.hidden)}",
            f"{reward:.3f}",
            "yes" if inside else "no",
        )
    if len(result.clients) > MAX_CLIENT_ROWS:
        everybody = "" if result.folder is None else ": summary.json has everybody"
        clients.caption = f"and {len(result.clients) - MAX_CLIENT_ROWS:,} more{everybody}"
    console.print(clients)
    alone = (
        f"alone: {metric} of the model a client trains alone, its contribution: on V, the server's validation data, it "
        f"decides; on the test set it is compared with the reward, the test {metric} of the model the client was paid."
    )
    if (error := result.contributions.error) is not None and deciding is None:
        alone += f" Standard error of alone:V: {min(error):.3f} to {max(error):.3f}."
    if deciding is not None:
        alone = (
            f"decides: a client's contribution ({config.decided_by}); reputations come from it, and gamma is taken "
            f"with it. alone: test {metric} of the model the client trains alone, which BCF compares with the reward, "
            f"the test {metric} of the model it was paid."
        )
    console.print(alone, style="dim")
    if result.reported_on == "validation":
        console.print("There is no test file: 'test' means the validation data here.", style="dim")
    labels = Table(caption="; ".join(EXPLAINED[label] for label in LABELS), caption_justify="left")
    labels.add_column("", no_wrap=True)
    # Eighty columns have no room for alpha-BCF, the mean reward (MCG is that less the mean of alone) and the least: see
    # the page.
    for head in ("round", "gamma", "gamma*", "attain.", "BCF", "best", "MCG", "CGS"):
        labels.add_column(head, justify="right", no_wrap=True)
    for label in LABELS:
        numbers = result.results[label]
        labels.add_row(
            label,
            str(numbers["round"]),
            _number(numbers["gamma"]),
            _number(numbers["gamma_limit"]),
            _number(numbers["gamma_attainable"]),
            f"{numbers['bcf']:.0%}",
            f"{numbers['accuracy']['max']:.3f}",
            f"{numbers['mcg']:+.3f}",
            f"{numbers['cgs']:.3f}",
        )
    console.print(labels)
    missing = any(result.results[label][key] is None for label in LABELS for key in ("gamma", "gamma_limit"))
    why = "; -: there is none, as where the best reward is below the best contribution" if missing else ""
    sent = result.summary()["bytes_per_round"]
    full = result.full_bytes * len(result.clients)
    console.print(
        f"gamma {_number(result.last['gamma'])} at the last round (gamma*: the most that BCF permits; attain.: "
        "what the best rule reaches when contributions are only known as the method knows them; best: of the rewards; "
        "MCG, CGS: mean and standard deviation of the gains, reward less alone on the test set"
        f"{why}). On the "
        f"wire, a round: {sent['down'] / 1e6:.2f} MB down, {sent['up'] / 1e6:.2f} MB up (full models: {full / 1e6:.2f} "
        f"MB each way). {result.seconds:.0f} s."
    )
    if (privacy := result.privacy) is not None:
        alone_only, every = privacy["epsilon_alone"], privacy["epsilon"]
        console.print(
            f"Differential privacy: epsilon {min(every):.2f} (the client with the most data) to {max(every):.2f} (the "
            f"least) for training alone and all rounds, {min(alone_only):.2f} to {max(alone_only):.2f} for training "
            f"alone, at delta {privacy['delta']:g}."
        )
    if result.folder is not None:
        console.print(f"Everything is in {result.folder} (start with its README.md).", soft_wrap=True)
    if page is not None:
        console.print(f"A page to look at: {page}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
