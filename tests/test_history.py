"""Nobody can rewrite history: what a site has seen of the ledger, and what it can show alone."""

import json
import re
import shutil

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation
from fedsac.federation.history import History, HistoryError, signed_order, signed_receipt
from fedsac.federation.identity import new_key
from fedsac.federation.ledger import FIRST_PREVIOUS, Ledger, canonical, content_hash, line_hash, read
from fedsac.federation.site import Site
from fedsac.federation.verifying import verify, verify_site
from fedsac.federation.wire import Order
from tests.flower_grid import InProcessGrid, coordinate, coordinator, digits_silos, federation, nodes

RUN = {"rounds": 3, "hidden": (8,), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


@pytest.fixture(scope="module")
def finished(silos, tmp_path_factory):
    folder = federation(tmp_path_factory.mktemp("finished") / "fed", silos, **RUN)
    coordinate(folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "fed")


def chained(entries):
    """These lines as a ledger whose chain holds: what somebody who may write the file can make of it."""
    previous = FIRST_PREVIOUS
    for seq, entry in enumerate(entries):
        entry |= {"seq": seq, "previous": previous}
        previous = entry["hash"] = line_hash(seq, previous, content_hash(entry))
    return entries


def write_ledger(folder, entries):
    (folder / "server" / "ledger.jsonl").write_bytes(b"".join(canonical(entry) + b"\n" for entry in entries))


def rewritten(folder, change):
    """Rewrite the ledger from the line that `change` changes, and sign every receipt again with the real key. Returns
    that line's number."""
    entries = read(folder / "server" / "ledger.jsonl")
    first = next(number for number, entry in enumerate(entries) if change(entry))
    write_ledger(folder, chained(entries))
    key = (folder / "server" / "receipts.key").read_bytes()
    for path in (folder / "server" / "receipts").glob("*.json"):
        old = json.loads(path.read_text())
        path.write_text(json.dumps({"format_version": 1} | signed_receipt(entries[old["seq"]], key)))
    return first + 1


def contribution_of_b(entry):
    if entry["kind"] != "contribution" or entry["body"]["site"] != "b":
        return False
    entry["body"]["validation"] -= 0.1
    return True


def test_each_site_holds_a_chain_of_signed_heads_and_verifies_alone(finished, capsys):
    ledger = finished / "server" / "ledger.jsonl"
    entries = read(ledger)
    for name in "abc":
        history = History(finished / name)
        assert [said["kind"] for said in history.statements] == ["join", "alone", *["round"] * 3, "reward"]
        assert history.hashes == [entry["hash"] for entry in entries[: len(history.hashes)]]
        assert history.rounds() == [1, 2, 3]
        assert main(["federation", "verify", str(finished / name)]) == 0
        assert history.head[1] in capsys.readouterr().out
        assert main(["federation", "verify", str(finished / name), "--ledger", str(ledger)]) == 0
    signed = [entry["body"] for entry in entries if entry["kind"] == "signed"]
    assert [(body["what"], sorted(body["sites"])) for body in signed] == [
        (what, ["a", "b", "c"]) for what in ("join", "alone", "round", "round", "round", "reward")
    ]


@pytest.mark.parametrize("site", ["a", "b", "c"])
def test_a_rewritten_ledger_with_receipts_signed_again_is_found_out_by_any_single_site(site, folder, tmp_path, capsys):
    line = rewritten(folder, contribution_of_b)
    alone = shutil.copytree(folder / site, tmp_path / "elsewhere" / site)
    capsys.readouterr()
    assert main(["federation", "verify", str(alone), "--ledger", str(folder / "server" / "ledger.jsonl")]) == 2
    said = capsys.readouterr().err
    assert f"line {line} was rewritten" in said and said.count("\n") == 1


def test_the_coordinators_own_verify_lacks_the_signatures(folder):
    for name in "abc":
        shutil.rmtree(folder / name)  # they are at the sites
    verify(Federation.load(folder))
    rewritten(folder, contribution_of_b)
    with pytest.raises(FedsacError, match="what was signed is not the ledger's line"):
        verify(Federation.load(folder))


def test_signatures_can_neither_be_forged_nor_left_out(folder):
    for name in "abc":
        shutil.rmtree(folder / name)
    ledger = folder / "server" / "ledger.jsonl"
    whole = read(ledger)
    write_ledger(folder, chained([entry for entry in read(ledger) if entry["kind"] != "signed"]))
    shutil.rmtree(folder / "server" / "receipts")
    with pytest.raises(FedsacError, match="counts an answer of a, who has not signed"):
        verify(Federation.load(folder))
    for entry in whole:
        if entry["kind"] == "signed" and entry["body"]["what"] == "round":
            entry["body"]["sites"]["a"]["signature"] = entry["body"]["sites"]["b"]["signature"]
    write_ledger(folder, chained(whole))
    with pytest.raises(FedsacError, match="not signed by a"):
        verify(Federation.load(folder))


@pytest.mark.parametrize("how", ["rewritten", "cut off"])
def test_sites_decline_to_go_on_with_another_ledger(how, silos, tmp_path):
    """The coordinator rewrites its ledger in the middle of a run, and goes on."""

    class StoppedError(BaseException):
        pass

    def stop(site, message):
        if json.loads(message.content.config_records["order"]["json"])["round"] == 2:
            raise StoppedError

    folder = federation(tmp_path / "fed", silos, settings="repeats = 0", **RUN)
    with pytest.raises(StoppedError):
        coordinate(folder, InProcessGrid(nodes(folder), before=stop))
    before = {name: (folder / name / "heads.jsonl").read_bytes() for name in "abc"}
    if how == "rewritten":
        rewritten(folder, contribution_of_b)
        says = "does not follow line"
    else:
        entries = read(folder / "server" / "ledger.jsonl")
        write_ledger(folder, entries[:-5])
        says = "cut off or rewritten|does not follow line|is not the one that this site has signed"
    with pytest.raises(FedsacError, match="fewer than 2 answers"):
        coordinate(folder)
    refused = [e["body"] for e in read(folder / "server" / "ledger.jsonl") if e["kind"] == "refused"]
    assert sorted(body["site"] for body in refused) == ["a", "b", "c"]
    assert all(body["reason"].startswith("history") for body in refused)
    assert all(re.search(says, why(folder, name)) for name in "abc")
    assert before == {name: (folder / name / "heads.jsonl").read_bytes() for name in "abc"}


def why(folder, site):
    """The last reason in a site's own log: a code is all that the coordinator is told."""
    return (folder / site / "site.log").read_text().splitlines()[-1]


def declines(folder, order, code):
    """The reason why a site declines an order, once the code that it sends is checked."""
    assert Site(folder / "a").answer(order).facts == {"declined": code}
    return why(folder, "a")


def ordered(folder, site, kind="round", facts=None, arrays=None, key=None, lines=1):
    """An order as the coordinator would sign it now, after that many more lines of its ledger."""
    ledger = Ledger(folder / "server" / "ledger.jsonl")
    for _ in range(lines):
        ledger.append("sent")
    key = key or (folder / "server" / "receipts.key").read_bytes()
    since = History(folder / site).head[0]
    return signed_order(site, Order(kind, 3, "t", facts or {}, arrays or {}), ledger, since, key)


@pytest.mark.parametrize("who", ["nobody", "another", "for b"])
def test_an_order_that_the_coordinator_has_not_signed_for_this_site_is_declined(who, folder):
    before = (folder / "a" / "heads.jsonl").read_bytes()
    order = ordered(folder, "b" if who == "for b" else "a", key=new_key()[0] if who == "another" else None)
    if who == "nobody":
        order = Order("round", 3, "t")
    assert "not signed" in declines(folder, order, "history")
    assert (folder / "a" / "heads.jsonl").read_bytes() == before


def test_an_old_order_is_not_taken_twice_and_the_last_one_may_be(folder):
    first, second = ordered(folder, "a", "hello"), None
    assert "no order" in declines(folder, first, "order")
    length = History(folder / "a").head[0]
    assert "no order" in declines(folder, first, "order"), "the same once more: nothing new is kept"
    assert History(folder / "a").head[0] == length
    second = ordered(folder, "a", "hello")
    Site(folder / "a").answer(second)
    assert "cut off or rewritten" in declines(folder, first, "history")


def test_a_statement_that_a_kill_cut_off_was_never_one(folder):
    path = folder / "a" / "heads.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"content": "12')
    Site(folder / "a").answer(ordered(folder, "a", "hello"))
    assert path.read_bytes().startswith(whole)
    assert [said["kind"] for said in History(folder / "a").statements][-1] == "hello"
    History(folder / "a").check_statements()


def reward_of(folder, site, change=None, key=None):
    """The order that brings a site its reward, with a receipt changed and signed again by the coordinator."""
    ledger = Ledger(folder / "server" / "ledger.jsonl")
    entry = json.loads(json.dumps(next(e for e in ledger.of_kind("reward") if e["body"]["site"] == site)))
    if change is not None:
        change(entry["body"])
        entry["hash"] = line_hash(entry["seq"], entry["previous"], content_hash(entry))
    key = key or (folder / "server" / "receipts.key").read_bytes()
    arrays = {"0.weight": np.zeros((10, 64)), "0.bias": np.zeros(10)}
    return ordered(folder, site, "reward", {"receipt": signed_receipt(entry, key), "extra_epoch": False}, arrays)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("contribution", "is not line"),
        ("another key", "not signed by the coordinator"),
        ("another site", "not for a's reward"),
    ],
)
def test_a_wrong_receipt_is_declined_and_nothing_is_kept(what, says, folder):
    kept = (folder / "a" / "receipt.json").read_bytes()
    if what == "contribution":
        order = reward_of(folder, "a", lambda body: body.update(contribution=0.1))
    elif what == "another key":
        order = reward_of(folder, "a", key=new_key()[0])
    else:
        order = reward_of(folder, "b")
        order = ordered(folder, "a", "reward", dict(order.facts), dict(order.arrays))
    assert says in declines(folder, order, "receipt")
    assert (folder / "a" / "receipt.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda body: body.update(contribution=0.1), "says contribution 0.1, and orders said"),
        (lambda body: body.update(rounds=[1, 2, 3, 9]), "counts round 9"),
    ],
)
def test_a_receipt_that_is_in_the_ledger_and_contradicts_the_orders(change, says, folder):
    """The ledger itself says so, in a line that is new to this site; what orders said before contradicts it."""
    ledger = Ledger(folder / "server" / "ledger.jsonl")
    body = json.loads(json.dumps(next(e for e in ledger.of_kind("reward") if e["body"]["site"] == "a")["body"]))
    change(body)
    receipt = signed_receipt(ledger.append("reward", **body), (folder / "server" / "receipts.key").read_bytes())
    arrays = {"0.weight": np.zeros((10, 64)), "0.bias": np.zeros(10)}
    order = ordered(folder, "a", "reward", {"receipt": receipt, "extra_epoch": False}, arrays)
    assert says in declines(folder, order, "receipt")


def test_heads_that_were_changed_do_not_verify(folder):
    path = folder / "a" / "heads.jsonl"
    lines = path.read_text().splitlines()
    said = json.loads(lines[2])
    path.write_text("\n".join([*lines[:2], json.dumps(said | {"contribution": 0.9}), *lines[3:]]) + "\n")
    with pytest.raises(HistoryError, match=r"the order round \(round 1\) is not signed"):
        verify_site(folder / "a", None)
    path.write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
    with pytest.raises(FedsacError, match=r"the receipt is not line \d+ of the ledger that this site has seen"):
        verify_site(folder / "a", None)


def test_an_old_copy_of_the_ledger_is_not_the_ledger(folder, tmp_path):
    lines = (folder / "server" / "ledger.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "old.jsonl").write_text("".join(lines[:6]))
    with pytest.raises(HistoryError, match="ends after line 6"):
        verify_site(folder / "a", tmp_path / "old.jsonl")


def test_a_site_whose_folder_is_an_old_copy_is_told_again(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    old = []

    def before(site, message):
        order = json.loads(message.content.config_records["order"]["json"])
        if (site, order["kind"], order["round"]) == ("a", "alone", 0):
            old.append((folder / "a" / "heads.jsonl").read_bytes())
        if (site, order["kind"], order["round"]) == ("a", "round", 1):
            (folder / "a" / "heads.jsonl").write_bytes(old[0])

    found = coordinate(folder, InProcessGrid(nodes(folder), before=before))
    assert [record["answered"] for record in found.records] == [["a", "b", "c"], ["b", "c"], ["a", "b", "c"]]
    (refused,) = [e["body"] for e in read(folder / "server" / "ledger.jsonl") if e["kind"] == "refused"]
    assert refused["reason"].startswith("history") and "is told what came after" in why(folder, "a")
    # Its receipt counts a round that it has forgotten; it is paid all the same, and knows that it has forgotten.
    assert json.loads((folder / "a" / "receipt.json").read_text())["body"]["rounds"] == [1, 3]
    said = verify_site(folder / "a", folder / "server" / "ledger.jsonl")
    assert "what this site saw before round 2 is forgotten" in said


def test_a_reply_that_signs_another_head_is_refused(silos, tmp_path):
    from dataclasses import replace

    from fedsac.federation import link
    from fedsac.federation.identity import sign
    from tests.flower_grid import reply_with

    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 1})

    def spoil(site, message, reply):
        said = link.read_reply(site, reply)
        if (site, said.kind) != ("b", "round"):
            return reply
        said = replace(said, head=(said.head[0], "0" * 64))
        said = replace(said, signature=sign((folder / "b" / "key").read_bytes(), said.digest()))
        return reply_with(reply, link.packed_reply(said))

    coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    (refused,) = [e["body"] for e in read(folder / "server" / "ledger.jsonl") if e["kind"] == "refused"]
    assert refused["site"] == "b" and refused["reason"].startswith("history")


def test_a_ledger_of_an_earlier_version_is_read_and_not_gone_on_with(folder):
    import hashlib

    path = folder / "server" / "ledger.jsonl"
    entries, previous = read(path), FIRST_PREVIOUS
    for entry in entries:
        entry |= {"format_version": 1, "previous": previous}
        entry.pop("hash")
        previous = entry["hash"] = hashlib.sha256(canonical(entry)).hexdigest()
    write_ledger(folder, entries)
    assert len(read(path)) == len(entries)
    with pytest.raises(FedsacError, match="an earlier fedsac began this federation"):
        coordinator(folder, InProcessGrid(nodes(folder))).run()
