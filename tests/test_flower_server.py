"""The federation in one process: the real client app answers, messages are encoded as on the wire."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

flwr = pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg  # noqa: E402

import fedsac  # noqa: E402
from fedsac import Config  # noqa: E402
from fedsac.cli import main  # noqa: E402
from fedsac.errors import FedsacError  # noqa: E402
from fedsac.federation import link as wire_link  # noqa: E402
from fedsac.federation.flower_internals import unbundled  # noqa: E402
from fedsac.federation.folder import Federation  # noqa: E402
from fedsac.federation.history import signed_order  # noqa: E402
from fedsac.federation.identity import sign  # noqa: E402
from fedsac.federation.ledger import Ledger  # noqa: E402
from fedsac.federation.setup import add, remove  # noqa: E402
from fedsac.federation.site import Site  # noqa: E402
from fedsac.federation.verifying import verify  # noqa: E402
from fedsac.federation.wire import Order  # noqa: E402
from fedsac.models.files import ModelFile  # noqa: E402
from fedsac.runs.setup import prepare  # noqa: E402
from tests.flower_grid import (  # noqa: E402
    SIZES,
    InProcessGrid,
    coordinate,
    coordinator,
    digits_silos,
    federation,
    nodes,
    of_kind,
    order_of,
    over_the_wire,
    reply_with,
)

RUN = {"rounds": 5, "hidden": (16, 16), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


@pytest.mark.parametrize(
    "method",
    [
        *("fedsac", "fedsac-plus", "fedavg", "qffl", "cffl", "cgsv", "fedave", "rffl", "iafl", "fedrac", "aequa"),
        *("standalone", "fedsac-no-allocation", "fedsac-no-aggregation", "fedsac-over-n"),
        *(
            "server-alone",
            "fedavg-server",
            "fedavg-v-client",
            "fedsac-server",
            "fedrac-server",
            "fedsac-plus-no-server",
        ),
    ],
)
def test_agrees_with_the_local_engine(method, silos, tmp_path):
    settings = RUN | {"method": method}
    if method in ("cgsv", "cffl", "fedave", "rffl"):
        settings["options"] = {"reward_by": "own"}
    found = coordinate(federation(tmp_path / "fed", silos, **settings))
    local = fedsac.run(Config(data=str(silos), **settings))
    assert [m.validation for _, m in sorted(found.members.items())] == list(local.contributions.validation)
    if local.global_model is not None:
        assert (local.global_model.params - found.state["model"]).abs().max() <= 1e-9
    for name, reward in zip(local.clients, local.reward_models, strict=True):
        delivered = ModelFile.load(tmp_path / "fed" / name / "reward.safetensors").network
        assert delivered.layout == reward.layout
        assert (delivered.params - reward.params).abs().max() <= 1e-9


def test_rewards_receipts_and_what_is_left(silos, tmp_path, capsys):
    folder = federation(tmp_path / "fed", silos, **RUN)
    coordinate(folder)
    for name, size in SIZES.items():
        receipt = json.loads((folder / name / "receipt.json").read_text())
        assert receipt["body"]["site"] == name and receipt["body"]["samples"] == size
        assert receipt["body"]["rounds"] == [1, 2, 3, 4, 5]
    assert len(verify(Federation.load(folder))) == 2 + 3 * 3
    capsys.readouterr()
    assert main(["predict", str(folder / "b" / "reward.safetensors"), str(silos / "test.npz")]) == 0
    out = capsys.readouterr()
    assert out.out.startswith("row,class,probability") and "accuracy 0." in out.err
    assert (folder / "server" / "run" / "summary.json").exists()
    # The same command again changes nothing that was paid.
    before = {name: (folder / name / "reward.safetensors").read_bytes() for name in SIZES}
    coordinate(folder)
    assert before == {name: (folder / name / "reward.safetensors").read_bytes() for name in SIZES}
    assert len(of_kind(folder, "reward")) == 3


@pytest.mark.parametrize("what", ["ledger", "cut off", "receipt", "signature", "reward"])
def test_what_was_tampered_with_does_not_verify(what, silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 1})
    coordinate(folder)
    ledger, receipt = folder / "server" / "ledger.jsonl", folder / "a" / "receipt.json"
    if what == "ledger":
        ledger.write_text(ledger.read_text().replace('"samples":60', '"samples":61', 1))
    elif what == "cut off":
        ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:5]))
    elif what == "receipt":
        receipt.write_text(receipt.read_text().replace('"samples": 60', '"samples": 61'))
    elif what == "signature":
        said = json.loads(receipt.read_text())
        receipt.write_text(json.dumps(said | {"signature": "AAAA"}))
    else:
        shutil.copy(folder / "c" / "reward.safetensors", folder / "a" / "reward.safetensors")
    with pytest.raises(FedsacError):
        verify(Federation.load(folder))


# -- what crosses the network


def test_bytes_on_the_wire_are_the_submodels_and_a_stated_overhead(silos, tmp_path):
    """docs/deployment.md: at most 500 bytes for each array, 70 for each new line of the ledger, 1.5 kB for the rest."""
    lines = (
        10  # between two messages here: joined and contribution of three sites at most, sent, signed, members, round
    )
    counted = {}
    for method in ("fedsac", "fedavg"):
        folder = federation(tmp_path / method, silos, **RUN | {"method": method})
        grid = InProcessGrid(nodes(folder))
        coordinate(folder, grid)
        counted[method] = 0
        sent = [body for body in of_kind(folder, "sent") if body["what"] == "round"]
        assert len(sent) == RUN["rounds"]
        for body in sent:
            for site in body["sites"].values():
                overhead = site["bytes"] - site["payload"]
                assert 0 < overhead <= 1500 + 500 * len(site["arrays"]) + 70 * lines
                assert site["payload"] == 8 * sum(int(np.prod(shape)) for shape in site["arrays"].values())
                counted[method] += site["bytes"]
        for name, messages in grid.sent.items():
            written = [body["sites"][name]["bytes"] for body in of_kind(folder, "sent") if name in body["sites"]]
            assert written == [len(message) for message in messages]
    assert counted["fedsac"] < counted["fedavg"]


def test_canaries_no_byte_holds_what_a_site_has_not_earned(silos, tmp_path):
    """Every reply's parameters are replaced by values of their own; none reaches a site that lacks the neuron."""
    folder = federation(tmp_path / "fed", silos, settings="max_step = 1e12", **RUN | {"rounds": 3})
    rng = np.random.default_rng(1)

    def mark(site, message, reply):
        if order_of(message)["kind"] != "round":
            return reply
        arrays = reply.content.array_records["arrays"]
        marked = {name: rng.uniform(-0.1, 0.1, array.shape) for name, array in arrays.items()}
        return signed_again(folder, site, reply, marked)

    grid = InProcessGrid(nodes(folder), spoil=mark)
    found = coordinator(folder, grid)
    looked = []

    def look(site, message):
        """What this site was just sent, against the coordinator's model and what the site holds of it."""
        if order_of(message)["kind"] not in ("round", "reward") or order_of(message)["round"] == 0:
            return
        sent = grid.sent[site][-1]
        held = found.prepared.layout.held(found.method.assign(found.task, found.state).neurons)
        earned = held[found.clients.index(site)].tolist()
        for value, own in zip(found.state["model"].tolist(), earned, strict=True):
            assert (np.float64(value).tobytes() in sent) == own
        looked.append((site, sum(earned)))

    grid.before = look
    found.run()
    assert not of_kind(folder, "lost"), "what is asserted above would be taken for a site that raises"
    assert sorted(looked)[0::3] and {site for site, _ in looked} == set(SIZES) and len(looked) == 9
    assert any(count < found.prepared.layout.parameters for _, count in looked)


# -- malformed replies


def signed_again(folder, site, reply, arrays):
    """A reply with other arrays, signed by the site itself: what a hostile site can send."""
    said = wire_link.read_reply(site, reply)
    raw = {name: wire_link.Raw.of(np.asarray(array)) for name, array in arrays.items()}
    changed = replace(said, arrays=raw)
    key = (folder / site / "key").read_bytes()
    changed = replace(changed, signature=sign(key, changed.digest()))
    return reply_with(reply, wire_link.packed_reply(changed))


def plain(reply):
    return {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}


def with_metric(value):
    def spoil(folder, site, reply):
        content = RecordDict(dict(reply.content.items()))
        content["metrics"] = MetricRecord({"num-examples": value})
        return reply_with(reply, content)

    return spoil


def with_arrays(change):
    def spoil(folder, site, reply):
        arrays = plain(reply)
        return signed_again(folder, site, reply, change(arrays))

    return spoil


def first(change):
    return with_arrays(lambda arrays: arrays | {"0.weight": change(arrays["0.weight"])})


ELEVEN = {
    "NaN": first(lambda w: np.full_like(w, np.nan)),
    "infinity": first(lambda w: np.full_like(w, np.inf)),
    "1e30": first(lambda w: np.full_like(w, 1e30)),
    "a shape that broadcasts": first(lambda w: w[:1]),
    "another dtype": first(lambda w: w.astype(np.float32)),
    "a negative example count": with_metric(-5),
    "a huge example count": with_metric(10**18),
    "an infinite example count": with_metric(float("inf")),
    "a shape that does not fit": first(lambda w: w[:, :-1]),
    "an array that is missing": with_arrays(lambda arrays: {k: v for k, v in arrays.items() if k != "0.weight"}),
    "an array too many": with_arrays(lambda arrays: arrays | {"8.weight": np.zeros(3)}),
}


@pytest.fixture(scope="module")
def without_b(silos, tmp_path_factory):
    """The aggregate of rounds in which b did not answer."""
    folder = federation(tmp_path_factory.mktemp("without") / "fed", silos, **RUN | {"rounds": 2})
    grid = InProcessGrid(nodes(folder), spoil=lambda s, m, r: None if (s, order_of(m)["kind"]) == ("b", "round") else r)
    return coordinate(shortened(folder), grid).state["model"]


def shortened(folder: Path) -> Path:
    toml = folder / "federation.toml"
    toml.write_text(toml.read_text().replace("timeout = 30", "timeout = 0.3"))
    return folder


@pytest.mark.parametrize("name", ELEVEN)
def test_malformed_replies_are_refused_and_the_round_goes_on(name, silos, tmp_path, without_b):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 2})

    def spoil(site, message, reply):
        if (site, order_of(message)["kind"]) == ("b", "round"):
            return ELEVEN[name](folder, site, reply)
        return reply

    found = coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert torch.equal(found.state["model"], without_b)
    refused = of_kind(folder, "refused")
    assert [body["site"] for body in refused] == ["b", "b"] and all(body["reason"] for body in refused)
    assert [record["answered"] for record in found.records] == [["a", "c"], ["a", "c"]]


def test_the_same_replies_against_flowers_own_strategy(tmp_path, silos):
    """What stands beside ours: FedAvg takes 8 of the 11, and the other 3 end the run."""
    outcome = {}
    for name in ELEVEN:
        good = {"0.weight": np.full((4, 5), 0.5), "0.bias": np.full(4, 0.5)}
        replies = [_flower_reply(node, good) for node in (11, 12, 13)]
        replies[1] = _flower_reply(12, *_spoiled(name, good))
        try:
            FlowerFedAvg().aggregate_train(1, replies)
            outcome[name] = "accepted"
        except BaseException as error:  # noqa: BLE001  SystemExit is what ends the run
            outcome[name] = type(error).__name__
    assert sum(result == "accepted" for result in outcome.values()) == 8, outcome


def _flower_reply(node, arrays, examples=10):
    from flwr.app import Message

    asked = Message(RecordDict(), node, "train")
    asked.metadata.__dict__["_message_id"] = f"m{node}"
    content = {
        "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
        "metrics": MetricRecord({"num-examples": examples}),
    }
    return Message(RecordDict(content), reply_to=asked)


def _spoiled(name, good):
    weight = good["0.weight"]
    changes = {
        "NaN": {"0.weight": np.full_like(weight, np.nan)},
        "infinity": {"0.weight": np.full_like(weight, np.inf)},
        "1e30": {"0.weight": np.full_like(weight, 1e30)},
        "a shape that broadcasts": {"0.weight": weight[:1]},
        "another dtype": {"0.weight": weight.astype(np.float32)},
        "a shape that does not fit": {"0.weight": weight[:, :-1]},
    }
    counts = {
        "a negative example count": -5,
        "a huge example count": 10**18,
        "an infinite example count": float("inf"),
    }
    arrays = good | changes.get(name, {})
    if name == "an array that is missing":
        del arrays["0.weight"]
    if name == "an array too many":
        arrays["8.weight"] = np.zeros(3)
    return arrays, counts.get(name, 10)


def test_refused_too_often_a_site_is_set_aside(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)

    def spoil(site, message, reply):
        if (site, order_of(message)["kind"]) == ("b", "round"):
            return ELEVEN["NaN"](folder, site, reply)
        return reply

    coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert [body["in_a_row"] for body in of_kind(folder, "refused")] == [1, 2, 3]
    asked = [sorted(body["sites"]) for body in of_kind(folder, "sent") if body["what"] == "round"]
    assert asked == [["a", "b", "c"]] * 3 + [["a", "c"]] * 2


def test_another_sites_key_is_not_taken(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 1})

    def spoil(site, message, reply):
        if (site, order_of(message)["kind"]) != ("b", "round"):
            return reply
        said = wire_link.read_reply(site, reply)
        signature = sign((folder / "a" / "key").read_bytes(), said.digest())
        record = ConfigRecord(dict(reply.content["reply"]) | {"signature": signature})
        return reply_with(reply, RecordDict({"reply": record, "arrays": reply.content["arrays"]}))

    coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    (refused,) = of_kind(folder, "refused")
    assert refused["reason"].startswith("identity")


@pytest.mark.parametrize(
    "method", ["fedsac", "fedsac-plus", "fedsac-no-allocation", "fedrac", "aequa", "iafl", "standalone"]
)
def test_what_a_site_claims_about_itself_changes_nobodys_reward(method, silos, tmp_path):
    """The methods that docs/deployment.md says take no site's word."""
    honest = coordinate(federation(tmp_path / "honest", silos, **RUN | {"method": method}))
    folder = federation(tmp_path / "lying", silos, **RUN | {"method": method})

    def boast(site, message, reply):
        if (site, order_of(message)["kind"]) != ("b", "join"):
            return reply
        said = wire_link.read_reply(site, reply)
        facts = {**said.facts, "samples": 10**9}
        more = replace(said, facts=facts)
        more = replace(more, signature=sign((folder / "b" / "key").read_bytes(), more.digest()))
        return reply_with(reply, wire_link.packed_reply(more))

    lying = coordinate(folder, InProcessGrid(nodes(folder), spoil=boast))
    assert lying.members["b"].samples == 10**9
    for name, value in honest.state.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(lying.state[name], value)


# -- faults and change


def test_an_answer_to_an_old_round_is_refused(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 3})
    kept = []

    def spoil(site, message, reply):
        if (site, order_of(message)["kind"]) != ("b", "round"):
            return reply
        kept.append(reply)
        return reply_with(reply, kept[0].content)

    coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert ["round" in body["reason"] for body in of_kind(folder, "refused")] == [True, True]


def test_an_answer_that_comes_too_late_is_not_taken(silos, tmp_path):
    def lose(kept):
        def spoil(site, message, reply):
            if (site, order_of(message)["kind"], order_of(message)["round"]) != ("b", "round", 0):
                return reply
            kept.append(over_the_wire(reply)[0])
            return None

        return spoil

    models = []
    for arrives in (True, False):
        folder = shortened(federation(tmp_path / f"fed-{arrives}", silos, **RUN | {"rounds": 3}))
        kept = []
        grid = InProcessGrid(nodes(folder), spoil=lose(kept))

        def before(site, message, grid=grid, kept=kept, arrives=arrives):
            grid.late = kept if arrives and order_of(message)["round"] == 1 else []

        grid.before = before
        found = coordinate(folder, grid)
        assert [record["answered"] for record in found.records] == [["a", "c"], ["a", "b", "c"], ["a", "b", "c"]]
        models.append(found.state["model"])
    assert torch.equal(*models)


def test_no_neuron_of_a_layer_at_all(silos, tmp_path):
    """A reputation near 0 earns hardly a neuron; what is left is still a network."""
    folder = federation(tmp_path / "fed", silos, **RUN | {"beta": 300.0, "hidden": (3, 2), "rounds": 3})
    found = coordinate(folder)
    assert min(found.records[-1]["neurons"]) <= 2
    assert [record["answered"] for record in found.records] == [["a", "b", "c"]] * 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.one_of(
        st.text(max_size=40),
        json_values.map(json.dumps),
        st.fixed_dictionaries(
            {"kind": json_values, "round": json_values, "token": json_values, "facts": json_values}
        ).map(json.dumps),
    ),
    st.text(max_size=10),
)
@settings(deadline=None)
def test_whatever_a_reply_says_it_is_a_reply_or_refused(text, signature):
    from fedsac.federation.guard import Asked, RefusedError, admit

    asked = _flower_reply(11, {})
    record = ConfigRecord({"json": text, "signature": signature})
    try:
        reply = wire_link.read_reply("a", reply_with(asked, RecordDict({"reply": record})))
        admit(Asked("a", "round", 0, "t", check=lambda digest, signature: False), reply)
    except RefusedError as error:
        assert str(error).isprintable() or "\n" not in str(error)
    else:
        pytest.fail("it was admitted")


def test_what_flower_cannot_decode_is_one_sites_failure(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 2})

    class Choking(InProcessGrid):
        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            for message in found:
                if (
                    message.metadata.src_node_id == 11
                    and "arrays" in unbundled(message.content)
                    and message.metadata.group_id == "1"
                ):
                    raise ValueError("object \ud800 is damaged")
            return found

    says = []
    found = coordinate(folder, Choking(nodes(folder)), says)
    assert [record["answered"] for record in found.records] == [["a", "b", "c"], ["a", "c"]]
    (refused,) = of_kind(folder, "refused")
    assert refused["site"] == "b" and refused["reason"].startswith("format")
    "\n".join(says).encode()


def test_sites_vanish_raise_and_come_back(silos, tmp_path):
    folder = shortened(federation(tmp_path / "fed", silos, **RUN))
    grid = InProcessGrid(nodes(folder))

    def before(site, message):
        said = order_of(message)
        grid.away = {"a"} if said["kind"] == "round" and said["round"] in (1, 2) and site == "c" else set()
        if (site, said["kind"], said["round"]) == ("b", "round", 3):
            raise RuntimeError("out of memory")

    grid.before = before
    grid.spoil = lambda s, m, r: None if (s, order_of(m)["kind"], order_of(m)["round"]) == ("a", "round", 1) else r
    found = coordinate(folder, grid)
    answered = [record["answered"] for record in found.records]
    assert answered[0] == ["a", "b", "c"]
    assert answered[1] == ["b", "c"]  # a's answer was lost
    assert "a" not in answered[2]  # a was away
    assert answered[3] == ["a", "c"]  # b raised
    assert answered[4] == ["a", "b", "c"]
    assert "out of memory" in str(of_kind(folder, "lost"))


def test_a_round_with_too_few_answers_is_repeated(silos, tmp_path):
    folder = shortened(federation(tmp_path / "fed", silos, settings="min_answers = 3", **RUN | {"rounds": 2}))
    lost = []

    def spoil(site, message, reply):
        if (site, order_of(message)["kind"]) == ("b", "round") and len(lost) < 2:
            lost.append(1)
            return None
        return reply

    found = coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert len(of_kind(folder, "repeated")) == 2
    assert [len(record["answered"]) for record in found.records] == [3, 3]
    plain_run = coordinate(federation(tmp_path / "plain", silos, **RUN | {"rounds": 2}))
    assert torch.equal(found.state["model"], plain_run.state["model"])  # nothing was aggregated twice


def test_too_few_answers_for_too_long(silos, tmp_path):
    folder = shortened(federation(tmp_path / "fed", silos, settings="min_answers = 3\nrepeats = 1", **RUN))
    grid = InProcessGrid(nodes(folder))
    grid.spoil = lambda site, m, r: None if (site, order_of(m)["kind"]) == ("b", "round") else r
    with pytest.raises(FedsacError, match="fewer than 3 answers 2 times"):
        coordinate(folder, grid)


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("instant", ["asking", "learned", "committed", "paying"])
@pytest.mark.parametrize("method", ["fedsac", "cgsv"])
def test_killed_and_started_again(instant, method, silos, tmp_path, monkeypatch):
    folder = federation(tmp_path / "fed", silos, **RUN | {"method": method})
    expected = coordinate(federation(tmp_path / "plain", silos, **RUN | {"method": method}))
    grid = InProcessGrid(nodes(folder))
    kind = "reward" if instant == "paying" else "round"
    if instant in ("asking", "paying"):

        def before(site, message):
            if order_of(message)["kind"] == kind and order_of(message)["round"] in (3, 5) and site == "b":
                raise KilledError

        grid.before = before
        with pytest.raises(KilledError):
            coordinate(folder, grid)
    else:
        from fedsac.runs.folder import Folder

        commit = Folder.commit

        def dying(self, checkpoint, records, seconds):
            if checkpoint.round == 3:
                if instant == "committed":
                    commit(self, checkpoint, records, seconds)
                raise KilledError
            commit(self, checkpoint, records, seconds)

        with monkeypatch.context() as patched, pytest.raises(KilledError):
            patched.setattr(Folder, "commit", dying)
            coordinate(folder, grid)
    again = coordinate(folder)
    for name in expected.state:
        if isinstance(expected.state[name], torch.Tensor):
            assert torch.equal(again.state[name], expected.state[name])
    assert [r["answered"] for r in again.records] == [["a", "b", "c"]] * 5
    assert len(of_kind(folder, "resumed")) == 1
    verify(Federation.load(folder))
    # A site stood alone once, whatever happened.
    assert len(of_kind(folder, "contribution")) == 3


@pytest.mark.parametrize("method", ["fedsac", "fedavg", "cgsv", "rffl", "iafl", "fedrac", "aequa", "cffl"])
def test_a_site_joins_later_and_one_leaves(method, silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"method": method})
    extra = tmp_path / "extra"
    digits_silos(extra, SIZES | {"d": 300})
    grid = InProcessGrid(nodes(folder))

    def before(site, message):
        said = order_of(message)
        if (said["kind"], said["round"], site) == ("round", 1, "a"):
            add(folder, "d")
            shutil.copy(extra / "d.npz", folder / "d" / "data.npz")
            toml = folder / "d" / "site.toml"
            toml.write_text(toml.read_text().replace('"data.csv"', '"data.npz"'))
            grid.folders = nodes(folder)
        if (said["kind"], said["round"], site) == ("round", 3, "a"):
            remove(folder, "b", revoked=False)

    grid.before = before
    found = coordinate(folder, grid)
    answered = [record["answered"] for record in found.records]
    assert answered == [["a", "b", "c"]] * 2 + [["a", "b", "c", "d"]] * 2 + [["a", "c", "d"]]
    changes = of_kind(folder, "members")
    assert [sorted(body["contributions"]) for body in changes] == [list("abc"), list("abcd"), list("acd")]
    if method == "fedsac":
        assert changes[0]["contributions"]["c"] == changes[1]["contributions"]["c"]
    for name in "abcd":
        assert (folder / name / "reward.safetensors").exists()
    assert json.loads((folder / "b" / "receipt.json").read_text())["body"]["rounds"] == [1, 2, 3, 4]
    verify(Federation.load(folder))


def test_a_revoked_site_is_sent_nothing_more(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    grid = InProcessGrid(nodes(folder))

    def before(site, message):
        if (order_of(message)["kind"], order_of(message)["round"], site) == ("round", 1, "a"):
            remove(folder, "b", revoked=True)

    grid.before = before
    coordinate(folder, grid)
    assert len(grid.sent["b"]) == 4  # join, alone, two rounds
    assert not (folder / "b" / "reward.safetensors").exists()


def test_revoked_in_the_last_round_a_site_is_not_paid(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 2})
    grid = InProcessGrid(nodes(folder))

    def before(site, message):
        if (order_of(message)["kind"], order_of(message)["round"], site) == ("round", 1, "a"):
            remove(folder, "b", revoked=True)

    grid.before = before
    found = coordinate(folder, grid)
    assert found.records[-1]["answered"] == ["a", "c"], "its last reply came after its key was revoked"
    assert [body["site"] for body in of_kind(folder, "reward")] == ["a", "c"]
    assert not (folder / "b" / "reward.safetensors").exists()


def test_schemas_that_do_not_agree_are_both_named(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 1})
    np.savez(folder / "b" / "data.npz", x=np.zeros((5, 7)), y=np.arange(5))
    says = []
    found = coordinate(folder, says=says)
    assert sorted(found.members) == ["a", "c"]
    (line,) = [text for text in says if "schemas" in text]
    assert "7" not in line, "what exactly the site has stays at the site"
    own = (folder / "b" / "site.log").read_text()
    assert "The site has 7 features" in own and "the federation has 64 features" in own


def test_a_class_that_the_federation_does_not_know(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 1})
    with np.load(silos / "b.npz") as data:
        np.savez(folder / "b" / "data.npz", x=data["x"], y=data["y"] + 5)
    says = []
    assert sorted(coordinate(folder, says=says).members) == ["a", "c"]
    assert any("schemas do not agree" in text for text in says)
    assert "does not occur in the federation's classes" in (folder / "b" / "site.log").read_text()


def some_data():
    rng = np.random.default_rng(0)
    return rng.random((40, 64)) * 16, np.arange(40) % 10


def a_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 12), torch.nn.ReLU(), torch.nn.Linear(12, 10))


def test_data_and_model_from_functions(silos, tmp_path):
    here = "tests.test_flower_server"
    folder = federation(tmp_path / "fed", silos, settings=f'model = "{here}:a_model"', **RUN | {"rounds": 1})
    toml = folder / "a" / "site.toml"
    toml.write_text(toml.read_text().replace('"data.npz"', f'"{here}:some_data"'))
    found = coordinate(folder)
    assert found.members["a"].samples == 40
    assert found.prepared.layout.sizes == (64, 12, 10)


def test_a_site_that_was_never_asked_to_join(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    order = Order("round", 0, "t", {}, {"0.weight": np.zeros((10, 64)), "0.bias": np.zeros(10)})
    ledger = Ledger(folder / "server" / "ledger.jsonl")
    ledger.append("began")
    reply = Site(folder / "a").answer(
        signed_order("a", order, ledger, 0, (folder / "server" / "receipts.key").read_bytes())
    )
    assert reply.facts == {"declined": "not joined"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[run]\ndata = 'x'", "data is not a setting"),
        ("[run]\nsplit_seed = 1", "split_seed is not a setting of a federation's run; the sites have the data"),
        ("[run]\ncontribution = 'shapley'", "use standalone"),
        ("[run]\nrouns = 3", "did you mean rounds"),
        ("[run]\nbehaviour = 'absent:0.5'", "behaviour is not a setting of a federation's run; it is simulated"),
        ("[run]\ncontributions = 'x.csv'", "they are measured when a site joins"),
        ("[run]\nnetwork = 'x:y'", r"name it as model in \[federation\]"),
        ("[run]\nmetric = 'f1-macro'", "no metric 'f1-macro'"),
        ("[federation]\nmin_answer = 3", "unknown key"),
        ("[federation]\nmin_answers = 0", "at least 1"),
        ("[federation]\nwait = 'x'", "must be float"),
    ],
)
def test_bad_settings_are_one_line(line, reason, silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    (folder / "federation.toml").write_text(line + "\n")
    with pytest.raises(FedsacError, match=reason):
        Federation.load(folder)


# -- the same loop: what a federation reports is what a local run reports

SITES_KEEP = ("losses",)  # a site's training losses do not cross the network


def same(ours, theirs, where=""):
    """Equal to 1e-9, number by number."""
    if isinstance(theirs, dict):
        assert set(theirs) <= set(ours), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            same(one, other, f"{where}[{i}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=1e-9), where
    else:
        assert ours == theirs, where


def summary_of(folder):
    return json.loads((folder / "server" / "run" / "summary.json").read_text())


@pytest.mark.parametrize(
    "settings",
    [
        {"eval_every": 2},
        {"eval_every": 2, "method": "cffl", "options": {"reward_by": "own"}},
        {"eval_every": 9, "method": "standalone"},
        {"metric": "macro-f1"},
        {"metric": "auc", "method": "fedsac-plus", "eval_every": 3},
    ],
    ids=lambda settings: " ".join(f"{key}={value}" for key, value in settings.items() if key != "options"),
)
def test_records_and_results_are_those_of_a_local_run(settings, silos, tmp_path):
    settings = RUN | settings
    found = coordinate(federation(tmp_path / "fed", silos, **settings))
    local = fedsac.run(Config(data=str(silos), **settings))
    for ours, theirs in zip(found.records, local.records, strict=True):
        assert set(theirs) <= set(ours)
        same(ours, {key: value for key, value in theirs.items() if key not in SITES_KEEP}, f"round {ours['round']}")
    every = settings.get("eval_every", 1)
    evaluated = [record["round"] for record in found.records if record["rewards"] is not None]
    assert evaluated == [n for n in range(1, 6) if n % every == 0 or n == 5]
    for record in found.records:
        unknown = ("rewards", "rewards_validation", "global_accuracy", "gamma", "bcf", "accuracy", "mcg", "cgs")
        if record["round"] not in evaluated:
            assert [record[key] for key in unknown] == [None] * len(unknown)
    summary = summary_of(tmp_path / "fed")
    assert {label["round"] for label in summary["results"].values()} <= set(evaluated)
    ignored = ("data", "bytes_per_round")
    same(summary, {key: value for key, value in local.summary().items() if key not in ignored}, "summary")


def test_contributions_rewards_and_receipts_are_by_the_metric(silos, tmp_path):
    settings = RUN | {"metric": "macro-f1"}
    folder = federation(tmp_path / "fed", silos, **settings)
    found = coordinate(folder)
    local = fedsac.run(Config(data=str(silos), **settings))
    by_accuracy = fedsac.run(Config(data=str(silos), **RUN))
    assert local.contributions.validation != by_accuracy.contributions.validation
    measured = {body["site"]: body for body in of_kind(folder, "contribution")}
    for i, name in enumerate(local.clients):
        body = json.loads((folder / name / "receipt.json").read_text())["body"]
        assert body["metric"] == "macro-f1"
        assert body["contribution"] == measured[name]["validation"] == local.contributions.validation[i]
        assert body["contribution_test"] == measured[name]["test"] == local.contributions.test[i]
        assert body["accuracy_test"] == pytest.approx(local.rewards[i], abs=1e-9)
        assert body["accuracy_validation"] == pytest.approx(local.last["rewards_validation"][i], abs=1e-9)
        assert body["accuracy_test"] == found.records[-1]["rewards"][i] != by_accuracy.rewards[i]
        assert body["reputation"] == pytest.approx(local.reputations[i], abs=1e-9)
    assert summary_of(folder)["metric"] == "macro-f1"


def joining(folder, extra, grid, when, leaves=None):
    """Somebody new after some round, and perhaps somebody less."""

    def before(site, message):
        said = order_of(message)
        if (said["kind"], said["round"], site) == ("round", when, "a"):
            add(folder, "d")
            shutil.copy(extra / "d.npz", folder / "d" / "data.npz")
            toml = folder / "d" / "site.toml"
            toml.write_text(toml.read_text().replace('"data.csv"', '"data.npz"'))
            grid.folders = nodes(folder)
            if leaves is not None:
                remove(folder, leaves, revoked=False)

    grid.before = before


@pytest.mark.parametrize("leaves", [None, "b"])
def test_a_site_joins_later_and_rounds_are_evaluated_now_and_then(leaves, silos, tmp_path):
    """Rounds of other clients are not mixed with the last ones, whether their number is another or, when somebody left
    at the same time, the same."""
    folder = federation(tmp_path / "fed", silos, **RUN | {"eval_every": 2})
    digits_silos(tmp_path / "extra", SIZES | {"d": 300})
    grid = InProcessGrid(nodes(folder))
    joining(folder, tmp_path / "extra", grid, 2, leaves)
    found = coordinate(folder, grid)
    now = [name for name in "abcd" if name != leaves]
    assert [record["clients"] for record in found.records] == [["a", "b", "c"]] * 3 + [now] * 2
    assert [record["rewards"] is not None for record in found.records] == [False, True, False, True, True]
    assert [len(record["rewards"]) for record in found.records if record["rewards"] is not None] == [3, *[len(now)] * 2]
    summary = summary_of(folder)
    assert summary["client_names"] == now
    assert {label["round"] for label in summary["results"].values()} <= {4, 5}
    for name in now:
        body = json.loads((folder / name / "receipt.json").read_text())["body"]
        assert body["accuracy_test"] == found.records[-1]["rewards"][now.index(name)]
    if leaves is not None:  # paid for what it had when it left, after a round that nobody evaluated
        body = json.loads((folder / leaves / "receipt.json").read_text())["body"]
        assert body["round"] == 3 and 0 < body["accuracy_test"] <= 1
    # The same folder can be looked at as any run's.
    assert main(["report", str(folder / "server" / "run")]) == 0


def test_killed_between_two_evaluations(silos, tmp_path):
    settings = RUN | {"eval_every": 2, "metric": "balanced-accuracy"}
    expected = coordinate(federation(tmp_path / "plain", silos, **settings))
    folder = federation(tmp_path / "fed", silos, **settings)
    grid = InProcessGrid(nodes(folder))

    def before(site, message):
        if (order_of(message)["kind"], order_of(message)["round"], site) == ("round", 3, "b"):
            raise KilledError

    grid.before = before
    with pytest.raises(KilledError):
        coordinate(folder, grid)
    again = coordinate(folder)
    assert [record["rewards"] for record in again.records] == [record["rewards"] for record in expected.records]
    assert summary_of(folder)["results"] == summary_of(tmp_path / "plain")["results"]


@pytest.mark.parametrize(
    ("where", "line", "says"),
    [
        ("run", {"metric": "nowhere:it"}, "metric 'nowhere:it' cannot be imported"),
        ("run", {"method": "nowhere:It"}, "method 'nowhere:It' cannot be imported"),
        ("federation", 'model = "nowhere:it"', "network 'nowhere:it' cannot be imported"),
        ("federation", 'model = "tests.test_flower_server:signed_again"', "must take the input's shape"),
        ("federation", 'model = "cnn"', "network cnn"),
        ("run", {"augment": "flip"}, "augment is for images"),
    ],
)
def test_what_does_not_exist_is_said_before_any_site_is_asked(where, line, says, silos, tmp_path):
    more, named = (line, "") if where == "run" else ({}, line)
    folder = federation(tmp_path / "fed", silos, settings=named, **RUN | more)
    grid = InProcessGrid(nodes(folder))
    with pytest.raises(FedsacError, match=says):
        coordinate(folder, grid)
    assert not grid.sent and not (folder / "server" / "run").exists()


def drawn_model(features, classes):
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(features, 20), torch.nn.ReLU(), torch.nn.Linear(20, classes)
    )


@pytest.mark.parametrize("factory", ["a_model", "drawn_model"])
@pytest.mark.parametrize("method", ["fedsac", "iafl", "fedrac"])
def test_a_network_of_ones_own_is_the_local_runs(factory, method, silos, tmp_path):
    """With weights that the factory fixes, and with weights that it draws."""
    named, settings = f"tests.test_flower_server:{factory}", RUN | {"method": method}
    found = coordinate(federation(tmp_path / "fed", silos, settings=f'model = "{named}"', **settings))
    local = fedsac.run(Config(data=str(silos), network=named, **settings))
    assert found.prepared.layout == local.layout and local.layout.neurons in (12, 20)
    assert torch.equal(found.prepared.initial, prepare([Config(data=str(silos), network=named, **settings)])[0].initial)
    for ours, theirs in zip(found.records, local.records, strict=True):
        same(ours, {key: value for key, value in theirs.items() if key not in SITES_KEEP}, f"round {ours['round']}")
    for name, reward in zip(local.clients, local.reward_models, strict=True):
        delivered = ModelFile.load(tmp_path / "fed" / name / "reward.safetensors").network
        assert delivered.layout == reward.layout
        assert (delivered.params - reward.params).abs().max() <= 1e-9


def test_drawn_weights_follow_the_seed_and_leave_torchs_generator_alone(silos):
    named = "tests.test_flower_server:drawn_model"
    before = torch.random.get_rng_state()
    one, again, other = (prepare([Config(data=str(silos), network=named, seed=seed)])[0].initial for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_simulation_takes_the_network_along_and_refuses_what_it_cannot_do(tmp_path):
    from fedsac.federation.simulation import deal_out

    config = Config(clients=3, network="tests.test_flower_server:drawn_model", metric="macro-f1", eval_every=4)
    deal_out(config, tmp_path / "fed")
    dealt = Federation.load(tmp_path / "fed")
    assert dealt.model == "tests.test_flower_server:drawn_model"
    assert (dealt.config.metric, dealt.config.eval_every, dealt.config.hidden) == ("macro-f1", 4, (20,))
    deal_out(Config(clients=3), tmp_path / "plain")
    assert Federation.load(tmp_path / "plain").model == ""
    (tmp_path / "given.json").write_text("{}")
    for name, value in {
        "behaviour": "absent:0.5",
        "attack": "zero",
        "contributions": str(tmp_path / "given.json"),
    }.items():
        with pytest.raises(FedsacError, match=f"flower-simulation has no {name}"):
            deal_out(Config(clients=3, **{name: value}), tmp_path / "never")
        assert not (tmp_path / "never").exists()
