"""Keys are made at the site: a site joins by an invitation that holds nothing secret, and is admitted by its public
key."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation, SiteSettings
from fedsac.federation.identity import fingerprint, new_key, sign
from fedsac.federation.joining import join
from fedsac.federation.setup import admit, init
from fedsac.federation.site import Site
from fedsac.federation.verifying import verify, verify_site
from fedsac.federation.wire import Order
from tests.flower_grid import InProcessGrid, coordinate, digits_silos


@pytest.fixture
def hub(tmp_path):
    init(tmp_path / "hub", [], "hub.example.org:9092")
    return tmp_path / "hub"


def secrets_of(folder):
    return {path.read_bytes() for path in folder.rglob("*key") if path.is_file()}


def test_no_secret_crosses_in_either_direction(hub, tmp_path):
    request, own, coordinators = join(tmp_path / "north", hub / "invitation.json")
    assert "PRIVATE" not in request.read_text() and "PRIVATE" not in (hub / "invitation.json").read_text()
    assert admit(hub, "north", request) == own == fingerprint((tmp_path / "north" / "key.pub").read_bytes())
    assert coordinators == fingerprint((hub / "server" / "receipts.pub").read_bytes())
    assert not (hub / "north").exists() and len(secrets_of(hub)) == 3
    assert secrets_of(hub).isdisjoint(secrets_of(tmp_path / "north"))
    sites = Federation.load(hub).sites()
    assert sites["north"]["public_key"].encode() == (tmp_path / "north" / "key.pub").read_bytes()
    settings = SiteSettings.load(tmp_path / "north")
    assert (settings.name, settings.address, settings.signer) == ("north", "hub.example.org:9092", coordinators)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("another name", "the request of 'north', not of south"),
        ("another key", "not signed with its key"),
        ("another federation", "not signed with its key for this federation"),
        ("no key", "no public key"),
        ("twice", "has a site north already"),
        ("again under another name", "is another site's"),
    ],
)
def test_a_request_that_is_not_the_sites_own_is_refused(what, says, hub, tmp_path):
    request, _, _ = join(tmp_path / "north", hub / "invitation.json")
    content, name, other = json.loads(request.read_text()), "north", hub
    if what == "another name":
        name = "south"
    elif what == "another key":
        content["public_key"] = new_key()[1].decode()
    elif what == "another federation":
        init(tmp_path / "other", [], "hub.example.org:9092")
        other = tmp_path / "other"
    elif what == "no key":
        content["public_key"] = "ssh-rsa ???"
    else:
        admit(hub, "north", request)
    if what == "again under another name":
        name = content["site"] = "south"
        key = (tmp_path / "north" / "key").read_bytes()
        from fedsac.federation.joining import request_digest

        public, coordinator = content["public_key"].encode(), (hub / "server" / "receipts.pub").read_bytes()
        content["proof"] = sign(key, request_digest("south", public, {"coordinator": coordinator.decode()}))
    request.write_text(json.dumps(content))
    with pytest.raises(FedsacError, match=says):
        admit(other, name, request)


def test_an_invitation_cannot_write_settings_into_site_toml(hub, tmp_path):
    said = json.loads((hub / "invitation.json").read_text())
    for change in ({"address": 'x:1"\nleast_batch = 1\n#'}, {"insecure": "false\nleast_batch = 1"}, {"ca": 3}):
        (tmp_path / "bad.json").write_text(json.dumps(said | change))
        with pytest.raises(FedsacError, match=r"no invitation|no address"):
            join(tmp_path / "north", tmp_path / "bad.json")
        assert not (tmp_path / "north").exists()


def test_a_coordinators_key_that_is_not_pinned_in_site_toml_is_refused(hub, tmp_path):
    join(tmp_path / "north", hub / "invitation.json")
    (tmp_path / "north" / "coordinator.pub").write_bytes(new_key()[1])
    reply = Site(tmp_path / "north")
    with pytest.raises(FedsacError, match="is not the signer in site"):
        reply.answer(Order("join", 0, "t"))


def test_the_commands_from_invitation_to_rewards(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    silos, folders = digits_silos(tmp_path / "silos"), {}
    assert main(["federation", "init", "hub", "--address", "127.0.0.1:9092"]) == 0
    assert "invitation.json" in capsys.readouterr().out
    for number, name in enumerate("abc"):
        assert main(["federation", "join", f"sites/{name}", "hub/invitation.json"]) == 0
        shown = capsys.readouterr().out
        assert "by telephone" in shown and "SHA256:" in shown
        assert main(["federation", "add", "hub", name, "--request", f"sites/{name}/request.json"]) == 0
        assert capsys.readouterr().out.split("key ")[1].split(";")[0] in shown
        folders[10 + number] = tmp_path / "sites" / name
        with np.load(silos / f"{name}.npz") as data:
            np.savez(folders[10 + number] / "data.npz", x=data["x"], y=data["y"])
        toml = folders[10 + number] / "site.toml"
        toml.write_text(toml.read_text().replace('"data.csv"', '"data.npz"'))
    shutil.copy(silos / "validation.npz", tmp_path / "hub")
    (tmp_path / "hub" / "federation.toml").write_text(
        'format_version = 1\n[federation]\nvalidation = "validation.npz"\nwait = 1\n[run]\nrounds = 1\nhidden = [8]\n'
    )
    coordinate(tmp_path / "hub", InProcessGrid(folders))
    assert verify(Federation.load(tmp_path / "hub"))
    for folder in folders.values():
        assert any("signed by the coordinator" in line for line in verify_site(folder, None))
