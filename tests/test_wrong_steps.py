"""Wrong steps of an operator, by the real command: each is one line that says what is wrong and what to do, and changes
nothing. What a site says of a server that it does not reach, or whose clock differs, is in `test_node.py`."""

import hashlib
import json
import re
import shutil

import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from tests.flower_grid import coordinate, digits_silos, federation

TABLE = "a,b,label\n1,2,x\n3,4,y\n5,6,x\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Two federations that have not begun, `hub` with the sites north and south (revoked), `other` with none, each with
    a site that has joined (`north`, `west`); and `over`, whose run is over."""
    base = tmp_path_factory.mktemp("prepared")
    done = [
        ["init", base / "hub", "--address", "127.0.0.1:19092"],
        ["init", base / "other", "--address", "127.0.0.1:19094"],
        ["join", base / "north", base / "hub" / "invitation.json"],
        ["join", base / "west", base / "other" / "invitation.json"],
        ["add", base / "hub", "north", "--request", base / "north" / "request.json"],
        ["add", base / "hub", "south"],
        ["revoke", base / "hub", "south"],
    ]
    for arguments in done:
        assert main(["federation", *map(str, arguments)]) == 0
    (base / "hub" / "validation.csv").write_text(TABLE)
    (base / "north" / "data.csv").write_text(TABLE)
    federation(base / "over", digits_silos(base / "silos"), rounds=1, hidden=(8,))
    coordinate(base / "over")
    shutil.rmtree(base / "silos")
    return base


def contents(folder):
    """Every path below a folder, with its permissions and content."""
    return {
        path.relative_to(folder): (
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


def edit(file, pattern, line):
    """Write a line of a file anew."""

    def change(here):
        path = here / file
        text, count = re.subn(pattern, lambda _: line, path.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, pattern
        path.write_text(text)

    return change


def site(pattern, line):
    return edit("north/site.toml", pattern, line)


def gone(file):
    return lambda here: (here / file).unlink()


def written(file, text):
    return lambda here: (here / file).write_text(text)


def done(command):
    """Another step before, which is right."""

    def change(here):
        words = [str(here / word) if (here / word).exists() else word for word in command.split()]
        assert main(["federation", *words]) == 0

    return change


def copied(file, to):
    return lambda here: shutil.copy(here / file, here / to)


def newer(file):
    def change(here):
        said = json.loads((here / file).read_text())
        (here / file).write_text(json.dumps(said | {"format_version": 9}))

    return change


REQUEST, INVITATION = "north/request.json", "hub/invitation.json"
STEPS = {
    # name: (what is done before, the step, what is wrong, what to do)
    # -- the wrong folder
    "init where something is": (None, "init hub", "hub is not empty", "name a new folder"),
    "init on a file": (written("hub.txt", ""), "init hub.txt", "hub.txt is a file", "name a new folder"),
    "server at a site's": (None, "server north", "north/federation.toml: there is no such", "name the coordinator's"),
    "run at a site's": (None, "run north", "this is a site's folder", "name the coordinator's"),
    "add at a site's": (None, "add north east", "this is a site's folder", "name the coordinator's"),
    "site at the hub's": (None, "site hub", "hub/site.toml: there is no such", "name the site's"),
    "status of nothing": (None, "status nowhere", "nowhere/federation.toml: there is no", "federation init makes one"),
    "site of nothing": (None, "site nowhere", "nowhere/site.toml: there is no such", "federation join makes"),
    "join twice": (None, f"join north {INVITATION}", "north is there already", "name another folder"),
    "join by no file": (None, "join east none.json", "none.json: cannot be read (No such", "check the path"),
    "join by a folder": (None, "join east hub", "hub: cannot be read (Is a directory)", "check the path"),
    "join by a request": (None, f"join east {REQUEST}", "it is no invitation", "init writes one, invitation.json"),
    "join by settings": (None, "join east hub/federation.toml", "cannot be read", "no JSON file of fedsac's"),
    "add by an invitation": (None, f"add hub east --request {INVITATION}", "no request", "join writes one at the site"),
    "verify by no ledger": (None, "verify north --ledger no.jsonl", "no.jsonl: cannot be read", "check the path"),
    "verify a hub by a copy": (None, "verify hub --ledger x", "--ledger is for a site's folder", "has no site.toml"),
    # -- names
    "a name that is none": (None, f"join ea$st {INVITATION}", "cannot be a site's name", "use letters, digits"),
    "a name that is there": (None, "add hub north", "hub has a site north already", "name another one"),
    "another site's request": (None, f"add hub east --request {REQUEST}", "of 'north', not of east", "add the site by"),
    "a name that is not": (None, "leave hub nort", "has no site nort", "name one that was added: north, south"),
    # -- the wrong address or port
    "an address without port": (None, "init x --address hub.example.org", "is no address", "write host:port"),
    "a port that is none": (None, "init x --address hub:99999", "'hub:99999' is no address", "a port from 1 to 65535"),
    "a site's address": (site("^address.*", 'address = "hub"'), "site north", "'hub' is no address", "write host:port"),
    "a hub's address": (
        edit("hub/federation.toml", "^address = \\S+", 'address = "hub:0"'),
        *("server hub", "federation.toml: 'hub:0' is no address", "write host:port"),
    ),
    # -- the wrong key
    "no key": (gone("north/key"), "site north", "north/key: cannot be read", "bring it back from a backup"),
    "another's key": (copied("west/key", "north/key"), "site north", "not the key that key.pub is of", "join anew"),
    "a broken key": (written("north/key", "x"), "site north", "it is no key in OpenSSH's", "bring it back"),
    "no authority": (gone("north/ca.pem"), "site north", "ca.pem: cannot be read", "coordinator's server/ca.pem"),
    "a broken authority": (written("north/ca.pem", "x"), "site north", "no certificate", "bring the coordinator's"),
    "another coordinator": (
        copied("west/coordinator.pub", "north/coordinator.pub"),
        *("site north", "is not the signer in site.toml", "compare its fingerprint by telephone"),
    ),
    "no coordinator": (
        gone("north/coordinator.pub"),
        "site north",
        "coordinator.pub: cannot",
        "bring the coordinator's",
    ),
    "a broken coordinator": (
        written("north/coordinator.pub", "x"),
        *("site north", "coordinator.pub: it has no public key", "bring the coordinator's server/receipts.pub"),
    ),
    "another federation": (
        None,
        "add hub west --request west/request.json",
        "for this federation",
        "Have the site join",
    ),
    "a hub without its key": (gone("hub/server/receipts.key"), "server hub", "receipts.key: there is no", "the backup"),
    "a hub's certificate": (written("hub/server/server.pem", "x"), "server hub", "no certificate", "the backup"),
    # -- renewing
    "renew what?": (None, "renew hub", "name one thing to renew", "as in: fedsac federation renew FOLDER certificate"),
    "renew two": (None, "renew north key --from x", "name one thing to renew", "as in: fedsac federation renew"),
    "a hub's word at a site": (None, "renew north switch", "this is a site's folder", "name the coordinator's"),
    "a site's word at a hub": (None, "renew hub key", "hub/site.toml: there is no such", "name the site's"),
    "an authority that is away": (
        gone("hub/server/ca.key"),
        *("renew hub certificate", "ca.key: there is no such file", "bring the authority's key from where it is kept"),
    ),
    "another authority's key": (
        copied("other/server/ca.key", "hub/server/ca.key"),
        *("renew hub certificate", "is not the key of ca.pem", "bring the right one"),
    ),
    "switch before anything": (None, "renew hub switch", "next: nothing is prepared", "first: fedsac federation renew"),
    "prepare twice": (
        done("renew hub signer"),
        *("renew hub signer", "a new signer waits there already", "switch), or delete that folder"),
    ),
    "a new key twice": (done("renew north key"), "renew north key", "a new key waits there already", "or delete that"),
    "renew by a request to join": (
        None,
        *(f"renew hub --request {REQUEST}", "no request for a new key", "renew FOLDER key writes one at the site"),
    ),
    "renew from an invitation": (
        None,
        *(f"renew north --from {INVITATION}", "is no renewal", "writes one at the coordinator"),
    ),
    "renew from a request": (
        None,
        f"renew north --from {REQUEST}",
        "it is no renewal",
        "writes one at the coordinator",
    ),
    "renew from another's": (
        done("renew other authority"),
        *("renew north --from other/renewal.json", "that this site has pinned, SHA256:", "for its renewal.json"),
    ),
    "a signer that nobody compared": (
        done("renew hub signer"),
        *("renew north --from hub/renewal.json", "the coordinator's key becomes SHA256:", "then add: --signer SHA256:"),
    ),
    # -- the wrong data
    "no validation data": (
        gone("hub/validation.csv"),
        "server hub",
        "validation.csv: cannot be read",
        "check the path",
    ),
    "run without it": (gone("hub/validation.csv"), "run hub", "validation.csv: cannot be read", "check the path"),
    "no data": (gone("north/data.csv"), "site north", "data.csv: cannot be read", "check the path"),
    "empty data": (written("north/data.csv", ""), "site north", "the file is empty", "begin it with a header row"),
    "a word": (written("north/data.csv", "a,label\nhi,x\n"), "site north", "'hi' is not a number", "drop the column"),
    "a label": (site("^label.*", 'label = "ill"'), "site north", "no column 'ill'", "write the one as label in"),
    "a table of Excel's": (
        site("^data = .*", 'data = "x.xls"'),
        "site north",
        "neither a .npz",
        "name one in the .toml",
    ),
    # -- the wrong settings or version
    "no quotes": (site("^name.*", "name = north"), "site north", "site.toml: cannot be read", "correct it there"),
    "an unknown setting": (
        site("^label", "labels"),
        "site north",
        "unknown key 'labels'",
        "there are name, data, label",
    ),
    "a wrong type": (site("^blur = \\S+", 'blur = "no"'), "site north", "blur must be float", "not 'no'"),
    "newer settings": (
        site("^format.*", "format_version = 9"),
        "site north",
        "newer than this fedsac",
        "update fedsac",
    ),
    "a newer invitation": (newer(INVITATION), f"join east {INVITATION}", "newer than this fedsac", "update fedsac"),
    "newer sites": (newer("hub/sites.json"), "status hub", "sites.json: format version 9", "update fedsac"),
    # -- the wrong order
    "verify before a run": (
        None,
        "verify hub",
        "ledger.jsonl: there is none yet",
        "begins with: fedsac federation run",
    ),
    "readmit the revoked": (None, "readmit hub south", "the key of south was revoked", "new key, under another name"),
    "leave when revoked": (None, "leave hub south", "does not take part", "it was revoked"),
    "add after the end": (None, "add over east", "is over", "found a new federation with: fedsac federation init"),
    "readmit after the end": (None, "readmit over a", "is over", "found a new federation"),
    "leave after the end": (None, "leave over a", "is over", "took part to its end, and nobody leaves"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_wrong_step_is_one_line_that_says_what_to_do(step, prepared, tmp_path, monkeypatch, capsys):
    before, command, wrong, remedy = STEPS[step]
    here = tmp_path / "here"
    shutil.copytree(prepared, here)
    if before is not None:
        before(here)
    monkeypatch.chdir(here)
    capsys.readouterr()
    found = contents(here)
    status = main(["federation", *command.split()])
    out, err = capsys.readouterr()
    assert status == 2 and not out
    assert err.startswith("fedsac: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert wrong in err and remedy in err, err
    assert "Traceback" not in err and "Errno" not in err and "(in /" not in err, err
    assert contents(here) == found
