"""New keys and certificates in a federation that goes on: nobody is left out, and what was signed before holds."""

import json
import re
import shutil
import ssl

import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation, SiteSettings
from fedsac.federation.guard import reply_digest
from fedsac.federation.history import coordinator_keys
from fedsac.federation.identity import expiry, fingerprint, public_key, sign
from fedsac.federation.identity import new_key as made_up_key
from fedsac.federation.ledger import read
from fedsac.federation.renewing import admit_new_key, prepare, renew_certificate, switch
from fedsac.federation.renewing_site import NEXT_KEY_FILE, mend, new_key, take_renewal, use_next_key
from fedsac.federation.setup import init, remove
from fedsac.federation.verifying import verify, verify_site
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind, order_of
from tests.test_history import chained, write_ledger

RUN = {"rounds": 5, "hidden": (8,), "seed": 3, "dtype": "float64"}


class KilledError(BaseException):
    pass


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


def renew_key(folder, site):
    """A site's key is renewed: made there, admitted here, in use there. Returns its fingerprint."""
    request, made = new_key(SiteSettings.load(folder / site))
    assert admit_new_key(Federation.load(folder), request) == (site, made)
    use_next_key(folder / site)
    return made


# -- a site's key


@pytest.fixture(scope="module")
def renewed(silos, tmp_path_factory):
    """A federation in which b had a new key after the second round, and another one after the fourth."""
    folder = federation(tmp_path_factory.mktemp("renewed") / "fed", silos, **RUN)
    made, keys = [], [(folder / "b" / "key").read_bytes()]

    def before(site, message):
        order = order_of(message)
        if (site, order["kind"]) == ("c", "round") and order["round"] in (1, 3):  # b has answered
            made.append(renew_key(folder, "b"))
            keys.append((folder / "b" / "key").read_bytes())

    return folder, coordinate(folder, InProcessGrid(nodes(folder), before=before)), made, keys


def test_a_site_with_a_new_key_misses_no_round_and_everything_verifies(renewed):
    folder, found, made, _ = renewed
    assert [record["answered"] for record in found.records] == [["a", "b", "c"]] * 5
    assert [(body["site"], body["key"]) for body in of_kind(folder, "renewed")] == [("b", key) for key in made]
    assert verify(Federation.load(folder))
    for name in "abc":
        assert verify_site(folder / name, folder / "server" / "ledger.jsonl")
    assert of_kind(folder, "refused") == []


@pytest.mark.parametrize("which", [0, 1, 2])
def test_signatures_count_with_the_key_of_their_time(which, renewed, tmp_path):
    """Somebody has found a key of b's and signs the last answer with it: only the third counts there."""
    folder, _, _, keys = renewed
    folder = shutil.copytree(folder, tmp_path / "fed")
    entries = read(folder / "server" / "ledger.jsonl")
    body = next(entry["body"] for entry in reversed(entries) if entry["kind"] == "signed")
    answer = body["sites"]["b"]
    head = (body["length"], body["head"])
    answer["signature"] = sign(keys[which], reply_digest(body["what"], 5, answer["token"], head, answer["content"]))
    write_ledger(folder, chained(entries))
    if which == 2:
        assert verify(Federation.load(folder))
        assert verify_site(folder / "b", folder / "server" / "ledger.jsonl")
        return
    with pytest.raises(FedsacError, match="not signed by b"):
        verify(Federation.load(folder))
    with pytest.raises(FedsacError, match="a signature of b that b has not made"):
        verify_site(folder / "b", folder / "server" / "ledger.jsonl")


@pytest.fixture
def hub(tmp_path):
    init(tmp_path / "hub", ["a", "b"], "hub.example.org:9092")
    return tmp_path / "hub"


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("not by the old key", "not signed with the present key of a"),
        ("by another site", "not signed with the present key of a"),
        ("revoked", "was revoked"),
        ("the same key again", "is, or was, a site's already"),
        ("a former key", "is, or was, a site's already"),
        ("another's new key", "not signed with its key"),
        ("a request to join", "no request for a new key"),
        ("an unknown site", "no request for a new key"),
    ],
)
def test_a_request_for_a_new_key_that_is_not_the_sites_own_is_refused(what, says, hub, tmp_path):
    request, _ = new_key(SiteSettings.load(hub / "a"))
    said = json.loads(request.read_text())
    if what == "not by the old key":
        said["by"] = said["proof"]
    elif what == "by another site":
        shutil.copy(hub / "b" / "key", hub / "a" / "key")
        (hub / "a" / NEXT_KEY_FILE).unlink()
        said = json.loads(new_key(SiteSettings.load(hub / "a"))[0].read_text())
    elif what == "revoked":
        remove(hub, "a", revoked=True)
    elif what in ("the same key again", "a former key"):
        admit_new_key(Federation.load(hub), request)
        if what == "a former key":
            use_next_key(hub / "a")
            admit_new_key(Federation.load(hub), new_key(SiteSettings.load(hub / "a"))[0])
    elif what == "another's new key":
        said["public_key"] = made_up_key()[1].decode()
    elif what == "a request to join":
        del said["by"]
    else:
        said["site"] = "x"
    sites = (hub / "sites.json").read_bytes()
    (tmp_path / "request.json").write_text(json.dumps(said))
    with pytest.raises(FedsacError, match=says):
        admit_new_key(Federation.load(hub), tmp_path / "request.json")
    assert (hub / "sites.json").read_bytes() == sites


def test_killed_while_it_changes_to_its_new_key(hub):
    new_key(SiteSettings.load(hub / "a"))
    before, after = (hub / "a" / "key.pub").read_bytes(), public_key((hub / "a" / NEXT_KEY_FILE).read_bytes())
    mend(hub / "a")
    assert (hub / "a" / "key.pub").read_bytes() == before, "nothing to mend"
    use_next_key(hub / "a")
    (hub / "a" / "key.pub").write_bytes(before)  # the last step had not been taken
    mend(hub / "a")
    assert (hub / "a" / "key.pub").read_bytes() == after and (hub / "a" / "key").stat().st_mode & 0o077 == 0
    assert (hub / "a" / "former.pub").read_bytes().strip() == before.strip()


# -- the coordinator's key


def test_a_new_signer_with_a_site_that_comes_late(silos, tmp_path):
    """a and b are told beforehand, c after the switch; until then c declines, and is not asked to believe anything."""
    folder = federation(tmp_path / "fed", silos, settings="aside_after = 9", **RUN)
    old = fingerprint((folder / "server" / "receipts.pub").read_bytes())

    def stop(site, message):
        if order_of(message)["kind"] == "round" and order_of(message)["round"] == 1:
            raise KilledError

    with pytest.raises(KilledError):
        coordinate(folder, InProcessGrid(nodes(folder), before=stop))
    own = Federation.load(folder)
    file, new = prepare(own, "signer")
    assert new != old
    with pytest.raises(FedsacError, match=re.escape(f"becomes {new}; compare it by telephone")):
        take_renewal(SiteSettings.load(folder / "a"), file, "")
    with pytest.raises(FedsacError, match="compare it by telephone"):
        take_renewal(SiteSettings.load(folder / "a"), file, old)
    for name in "ab":
        take_renewal(SiteSettings.load(folder / name), file, new)
        assert SiteSettings.load(folder / name).signer == new

    def stop_later(site, message):
        if order_of(message)["kind"] == "round" and order_of(message)["round"] == 2:
            raise KilledError

    with pytest.raises(KilledError):  # the old key is in use, and all three take its orders
        coordinate(folder, InProcessGrid(nodes(folder), before=stop_later))
    assert of_kind(folder, "refused") == []
    stolen = (folder / "server" / "receipts.key").read_bytes()
    assert switch(own) == new
    late = []

    def before(site, message):
        order = order_of(message)
        if (site, order["kind"], order["round"]) == ("a", "round", 3) and not late:
            late.append(take_renewal(SiteSettings.load(folder / "c"), folder / "renewal.json", new))

    found = coordinate(folder, InProcessGrid(nodes(folder), before=before))
    assert [record["answered"] for record in found.records[2:]] == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    (refused,) = of_kind(folder, "refused")
    assert refused["site"] == "c" and refused["reason"].startswith("history")
    assert [body["key"] for body in of_kind(folder, "renewed")] == [new]
    assert verify(own)
    for name in "abc":
        assert len(coordinator_keys(folder / name)) == 2
        assert verify_site(folder / name, folder / "server" / "ledger.jsonl")
    # Whoever has the old key gives no orders any more.
    from tests.test_history import declines, ordered

    assert "not signed" in declines(folder, ordered(folder, "a", key=stolen), "history")


@pytest.mark.parametrize("what", ["nobody", "another", "the next key"])
def test_a_renewal_that_the_pinned_key_has_not_signed_is_not_taken_in(what, hub, tmp_path):
    file, new = prepare(Federation.load(hub), "signer")
    said = json.loads(file.read_text())
    if what == "nobody":
        said["signatures"] = []
    elif what == "another":
        said["ca"] = said["ca"] + "\n"
    else:
        said["signatures"] = said["signatures"][1:]
    file.write_text(json.dumps(said))
    before = {path: path.read_bytes() for path in (hub / "a").iterdir()}
    with pytest.raises(FedsacError, match="not signed with the coordinator's key that this site has pinned"):
        take_renewal(SiteSettings.load(hub / "a"), file, new)
    assert before == {path: path.read_bytes() for path in (hub / "a").iterdir()}


# -- certificates


def trusted(server, authorities):
    """Whether a client that trusts these authorities takes the server's certificate."""
    there, here = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context(cafile=authorities)
    there.load_cert_chain(server / "server.pem", server / "server.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = here.wrap_bio(to_client, to_server, server_hostname="hub.example.org")
    other = there.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return client.getpeercert() is not None


def test_a_new_certificate_of_the_same_authority(hub):
    server, before = hub / "server", (hub / "server" / "server.pem").read_bytes()
    renew_certificate(Federation.load(hub))
    after = (server / "server.pem").read_bytes()
    assert after != before and expiry(after) >= expiry(before)
    assert trusted(server, hub / "a" / "ca.pem")
    assert (server / "server.key").stat().st_mode & 0o077 == 0 and not (server / "next").exists()


def test_a_new_authority_is_trusted_before_it_is_used_and_the_old_one_not_after(hub):
    own, server = Federation.load(hub), hub / "server"
    old = shutil.copytree(server, hub / "old")
    file, _ = prepare(own, "authority")
    assert trusted(server, hub / "a" / "ca.pem"), "nothing has changed yet"
    take_renewal(SiteSettings.load(hub / "a"), file, "")
    assert trusted(server, hub / "a" / "ca.pem"), "a trusts both"
    renew_certificate(own)  # of the old authority, once more, while the new one waits
    assert trusted(server, hub / "a" / "ca.pem") and trusted(server, hub / "b" / "ca.pem")
    switch(own)
    assert trusted(server, hub / "a" / "ca.pem")
    assert not trusted(server, hub / "b" / "ca.pem"), "b was not told"
    for name in "ab":
        take_renewal(SiteSettings.load(hub / name), hub / "renewal.json", "")
        assert trusted(server, hub / name / "ca.pem")
        assert not trusted(old, hub / name / "ca.pem"), "the old authority is forgotten"
    assert json.loads((hub / "invitation.json").read_text())["ca"] == (server / "ca.pem").read_text()


@pytest.mark.parametrize("moved", range(7))
def test_killed_during_the_switch_the_same_command_goes_on(moved, hub, monkeypatch):
    """Everything is renewed at once, and the process ends after so many of the seven renames."""
    own = Federation.load(hub)
    prepare(own, "authority")
    _, new = prepare(own, "signer")
    for name in "ab":
        take_renewal(SiteSettings.load(hub / name), hub / "renewal.json", new)
    path, renames = type(hub), []
    replace = path.replace

    def dies(self, target):
        if self.parent.name == "next" and not self.name.endswith(".part"):
            if len(renames) == moved:
                raise KilledError
            renames.append(self.name)
        return replace(self, target)

    monkeypatch.setattr(path, "replace", dies)
    with pytest.raises(KilledError):
        switch(own)
    monkeypatch.undo()
    assert switch(own) == new
    assert trusted(hub / "server", hub / "a" / "ca.pem") and not (hub / "server" / "next").exists()
    key = (hub / "server" / "receipts.key").read_bytes()
    assert public_key(key).strip() == (hub / "server" / "receipts.pub").read_bytes().strip()
    assert len((hub / "server" / "former.pub").read_bytes().splitlines()) == 1
    for name in "ab":
        take_renewal(SiteSettings.load(hub / name), hub / "renewal.json", new)


def test_the_commands(hub, capsys):
    """As the operators type them, each at his end."""
    assert main(["federation", "renew", str(hub), "certificate"]) == 0
    assert main(["federation", "renew", str(hub), "signer"]) == 0
    new = [word for word in capsys.readouterr().out.split() if word.startswith("SHA256:")][-1]
    renewal = str(hub / "renewal.json")
    assert main(["federation", "renew", str(hub / "a"), "--from", renewal, "--signer", new]) == 0
    assert main(["federation", "renew", str(hub), "switch"]) == 0
    assert new in capsys.readouterr().out
    assert main(["federation", "renew", str(hub / "a"), "key"]) == 0
    assert main(["federation", "renew", str(hub), "--request", str(hub / "a" / "request.json")]) == 0
    assert "no longer taken" in capsys.readouterr().out
