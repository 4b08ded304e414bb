"""The content of the page about one run: its figures and tables."""

from collections.abc import Sequence

from fedsac.report.axes import WIDTH
from fedsac.report.charts import Series, bars, contribution_reward, lines
from fedsac.report.confusion import confusion_tables
from fedsac.report.heatmap import heatmap
from fedsac.report.markup import Cell, Figure, cards, figure, grid, number, paragraph, section, signed, table
from fedsac.report.reading import Run, settings
from fedsac.report.warned import warned
from fedsac.runs.labels import LABELS, mean_log_loss

EXPLAINED = (
    "last: the last round, our headline. selected: the round chosen on validation data alone. best: the round with the "
    "highest gamma on the test set, the paper's rule, which is optimistic. gamma is 100 times the correlation of "
    "contributions and rewards, gamma* the most that BCF permits, attainable what the best rule reaches when "
    "contributions are only known as the method knows them, from V. BCF, bounded collaborative fairness: everyone is "
    "better off than alone, and nobody but the best contributor is nearer to the best reward than to the own "
    "contribution. "
    "alpha-BCF is FedRAC's bound. A client's gain is its reward less what it reaches alone, in points of a hundred. "
    "MCG, the mean collaboration gain, says whether collaborating pays, which gamma cannot see. CGS, the collaboration "
    "gain spread, is the gains' standard deviation: 0 where everyone gains alike. log-loss is the mean of the rewards'."
)


def title(run: Run) -> str:
    c = run.config
    where = f", {c.scene}" if c.scene not in (None, "silos") else ""
    return f"{c.method} on {run.data}{where}"


def subtitle(run: Run) -> str:
    c, layers = run.config, " and ".join(map(str, run.config.hidden))
    network = f"hidden layers of {layers} neurons"
    if c.network != "mlp":
        network = f"network {c.network} with {sum(c.hidden)} units in {len(c.hidden)} groups"
    size = f"{len(run.clients)} clients, {c.rounds} rounds, {c.seeds_named}{c.conduct_named}, {network}"
    return f"{size}, scored by {run.metric}"


def figures(run: Run) -> list[Figure]:
    """Every figure that this run has the numbers for."""
    return [*_pay(run), *_rounds(run), *_submodels(run)]


def body(run: Run, drawn: Sequence[Figure]) -> str:
    """The page's sections as HTML; `drawn` are the run's figures."""
    shown = {entry.name: figure(entry) for entry in drawn}

    def side_by_side(*names: str) -> str:
        return grid(*(shown[name] for name in names if name in shown))

    parts = []
    if not run.finished:
        said = f"Unfinished: {run.records[-1]['round']} of {run.config.rounds} rounds are committed."
        parts.append(paragraph(f"{said} `last` is round {run.last['round']}, the newest that was evaluated.", "badge"))
    parts += warned([run])
    parts.append(section(f"At the last round ({run.last['round']})", cards(_headline(run)), _labels(run)))
    paid = side_by_side("contribution-reward", "accuracy-rounds")
    parts.append(section("Who contributed what, who was paid what", _clients(run), _about_clients(run), paid))
    if mistaken := confusion_tables(run):
        parts.append(section("What is taken for what", mistaken))
    parts.append(section("Fairness and traffic over the rounds", side_by_side("fairness-rounds", "bytes")))
    models = side_by_side("neurons", "importance", "parameters")
    parts.append(section("Submodels", models, paragraph(_about_neurons(run), "note")))
    every = table("Every setting of the run", ("setting", "value", "meaning"), settings(run.config))
    parts.append(section("Settings", every))
    return "".join(parts)


def _headline(run: Run) -> list[tuple[str, str, str]]:
    last, inside, n = run.chosen["last"], sum(run.inside_bcf), len(run.clients)
    gamma = "-" if last["gamma"] is None else f"{last['gamma']:.2f}"
    limit = "gamma* does not exist" if last["gamma_limit"] is None else f"gamma* {last['gamma_limit']:.2f}"
    if last["gamma_attainable"] is not None:
        limit += f", attainable {last['gamma_attainable']:.2f}"
    alone = f"{run.score}; best contribution {100 * max(run.contributions.test):.1f} %"
    gains = f"points of {run.score}; CGS {100 * last['cgs']:.1f}"
    entries = [
        ("gamma (last)", gamma, limit),
        ("inside BCF (last)", f"{inside} of {n}", f"{inside / n:.0%} of the clients"),
        ("best reward (last)", f"{100 * last['accuracy']['max']:.1f} %", alone),
        ("mean gain, MCG (last)", signed(100 * last["mcg"]).shown, gains),
    ]
    if run.saved is not None and run.full_bytes is not None:
        sent = sum(record["bytes"]["down"] for record in run.records) / len(run.records)
        sizes = f"{sent / 1e6:.2f} MB down a round; full models {run.full_bytes / 1e6:.2f} MB"
        entries.append(("bytes saved (all rounds)", f"{100 * run.saved:.1f} %", sizes))
    return entries


def _labels(run: Run) -> str:
    rows: list[list[Cell | str]] = []
    for label, record in ((label, run.chosen[label]) for label in LABELS):
        scores = [number(100 * record["accuracy"][key], 1) for key in ("max", "mean", "min")]
        gains = [signed(100 * record["mcg"]), number(100 * record["cgs"], 1), number(mean_log_loss(record), 3)]
        fair = [number(record[key]) for key in ("gamma", "gamma_limit", "gamma_attainable")]
        shares = [number(100 * record[key], 0) for key in ("bcf", "alpha_bcf")]
        rows.append([label, number(record["round"], 0), *fair, *shares, *scores, *gains])
    fair_heads = ("gamma", "gamma*", "attainable", "in BCF %", "alpha-BCF %")
    heads = ("", "round", *fair_heads, "best reward %", "mean %", "min %", "MCG", "CGS", "log-loss")
    return table("Three rounds, chosen as their labels say", heads, rows, sortable=False) + paragraph(EXPLAINED, "note")


def _clients(run: Run) -> str:
    last, c = run.last, run.contributions
    columns: list[tuple[str, list[Cell]]] = []
    if run.samples is not None:
        columns.append(("samples", [number(value, 0) for value in run.samples]))
    if c.deciding is not None:
        columns.append(("decides", [number(value, 3) for value in c.deciding]))
    columns.append(("alone on V %", [number(100 * value, 1) for value in c.validation]))
    if c.error is not None:
        columns.append(("± on V", [number(100 * value, 1) for value in c.error]))
    columns.append(("alone %", [number(100 * value, 1) for value in c.test]))
    if run.reputations is not None:
        columns.append(("reputation", [number(value, 1) for value in run.reputations]))
    columns.append(("neurons", [number(value, 0) for value in last["neurons"]]))
    if run.parameters is not None:
        share = [100 * value / run.parameters for value in last["parameters"]]
        columns.append(("of the model %", [number(value, 1) for value in share]))
    gains = [100 * (theta - alone) for theta, alone in zip(last["rewards"], c.test, strict=True)]
    columns.append(("reward %", [number(100 * value, 1) for value in last["rewards"]]))
    columns.append(("gain", [signed(value) for value in gains]))
    if last.get("log_losses") is not None:  # earlier versions did not write them
        columns.append(("log-loss", [number(value, 3) for value in last["log_losses"]]))
    columns.append(("in BCF", [Cell("yes", 1, "good") if ok else Cell("no", 0, "bad") for ok in run.inside_bcf]))
    rows: list[list[Cell | str]] = [[name, *(cells[i] for _, cells in columns)] for i, name in enumerate(run.clients)]
    return table(f"Clients after round {last['round']}", ("client", *(head for head, _ in columns)), rows)


def _about_clients(run: Run) -> str:
    test = "the validation data, for there is no test file" if run.reported_on == "validation" else "the test set"
    said = (
        f"alone: {run.metric} of the model that a client trains by itself, its contribution, on {test}; on V, the "
        f"server's validation data. reward: {run.metric} of the model the client is paid, on the same data as alone. "
        "gain: reward less alone. log-loss: the mean of -log p of the right class, of the model the client is paid."
    )
    if run.contributions.error is not None:
        said += " ± on V: its standard error, for the samples that V happens to have; training again adds its own."
    if run.contributions.deciding is not None:
        said += f" decides: the client's contribution ({run.config.decided_by}), with which gamma is taken."
    return paragraph(said, "note")


def _pay(run: Run) -> list[Figure]:
    """Figures of contributions, rewards, and the sizes of the submodels."""
    c, rewards = ([100 * value for value in values] for values in (run.contributions.test, run.last["rewards"]))
    made = [
        Figure(
            "contribution-reward",
            contribution_reward(
                f"Contribution and reward, round {run.last['round']}", run.clients, c, rewards, f" ({run.score}, %)"
            ),
            "A client inside the band is better off than alone, and not nearer to the best reward than to its own "
            "contribution.",
        )
    ]
    if run.parameters is not None:
        order = sorted(range(len(c)), key=lambda i: c[i])
        share = [100 * run.last["parameters"][i] / run.parameters for i in order]
        drawing = bars(
            "Size of the model each client is paid", [run.clients[i] for i in order], {"": share}, "% of all parameters"
        )
        made.append(Figure("parameters", drawing, "Clients from the least to the greatest contribution."))
    return made


def _rounds(run: Run) -> list[Figure]:
    """Figures of rewards, fairness and traffic over the rounds."""
    records = run.evaluated
    rewards = [
        Series(name, tuple((r["round"], 100 * r["rewards"][i]) for r in records)) for i, name in enumerate(run.clients)
    ]

    def over(name: str, key: str, scale: float) -> Series:
        points = tuple((r["round"], scale * r[key]) for r in records if r[key] is not None)
        return Series(name, points, gaps=tuple(r["round"] for r in records if r[key] is None))

    fair = [
        over("gamma", "gamma", 1),
        over("gamma*", "gamma_limit", 1),
        over("attainable", "gamma_attainable", 1),
        over("in BCF (%)", "bcf", 100),
        over("alpha-BCF (%)", "alpha_bcf", 100),
    ]
    sent = [Series(way, tuple((r["round"], r["bytes"][way] / 1e6) for r in run.records)) for way in ("down", "up")]
    if run.full_bytes is not None:
        sent.append(Series("full models", tuple((r["round"], run.full_bytes / 1e6) for r in run.records)))
    return [
        Figure(
            "accuracy-rounds",
            lines("Reward of each client over the rounds", rewards, "round", f"{run.score} (%)"),
            f"The {run.metric} of the model that each client holds after a round.",
        ),
        Figure(
            "fairness-rounds",
            lines("Fairness over the rounds", fair, "round", "gamma, % of clients", direct=False),
            "gamma* is the highest gamma that BCF permits; it does not exist while the best reward is below the best "
            "contribution. attainable is what the best rule reaches when contributions are only known from V.",
        ),
        Figure("bytes", lines("On the wire, all clients together", sent, "round", "MB", direct=False, zero=True)),
    ]


def _submodels(run: Run) -> list[Figure]:
    """Figures of the neurons that each client holds, and of their importance."""
    if run.held is None:
        return []
    made, sizes = [], run.config.hidden
    # Neurons are ordered by importance or, if there is none, by how many clients hold them.
    sort_key = -run.held.sum(0).astype(float) if run.importance is None else run.importance
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    layers = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    ranked = [sorted(layer, key=lambda n: (float(sort_key[n]), n)) for layer in layers]
    clients = sorted(range(len(run.clients)), key=lambda i: run.contributions.test[i])
    rows = run.held.astype(float).tolist()
    cells = [[rows[i][n] for layer in ranked for n in layer] for i in clients]
    groups = [(f"layer {k + 1}: {size} neurons", size) for k, size in enumerate(sizes)]
    by = "held by most first" if run.importance is None else "least important first"
    drawing, narrow = (
        heatmap(
            f"Neurons that each client holds, {by}",
            [run.clients[i] for i in clients],
            cells,
            groups,
            tip="{name} holds neurons {first} to {last} of {group}",
            note="Clients from the least to the greatest contribution, one row each; a filled cell is a neuron held.",
            width=width,
            stacked=width == WIDTH,
        )
        for width in (2 * WIDTH, WIDTH)
    )
    made.append(Figure("neurons", drawing, drawing.description, narrow))
    if run.importance is not None:
        values = run.importance.tolist()
        curves = []
        for k, layer in enumerate(ranked):
            falling = reversed(layer)
            curves.append(Series(f"layer {k + 1}", tuple((r + 1, values[n]) for r, n in enumerate(falling))))
        drawing = lines(
            "Importance of neurons, from the greatest down",
            curves,
            "rank in its layer",
            "rise of the loss",
            direct=False,
        )
        made.append(Figure("importance", drawing, "How much the loss on V rises when a neuron is left out (Eq. 3)."))
    return made


def _about_neurons(run: Run) -> str:
    if run.held is None:
        return (
            "Which neurons each client holds is not shown: the folder has no checkpoint, or the method "
            f"({run.config.method}) does not deal in neurons."
        )
    return f"As the newest checkpoint has it, after round {run.state_round}."
