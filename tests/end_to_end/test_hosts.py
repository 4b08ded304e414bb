"""A federation on hosts of their own: network namespaces on a bridge, made for the test, with nothing else in them. One
story on IPv4, in which links are cut in a round, and a short one on IPv6."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("flwr")

from tests.end_to_end.test_faults import Trial
from tests.end_to_end.test_federation import FEDSAC, page_commands, rounds, until
from tests.flower_grid import SIZES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")]

HOSTS = ("server", *SIZES)
PORT, CONTROL = 9092, 9193
ADDRESSES = {4: "192.0.2.{}", 6: "2001:db8::{}"}  # for documentation: nobody has them
CONNECTS = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """A namespace with a bridge, and one for each host, with a cable to the bridge."""

    def __init__(self, version):
        self.prefix, self.version = f"fedsac{os.getpid()}", version
        self.switch = f"{self.prefix}-switch"

    def make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for number, host in enumerate(HOSTS, 1):
            space = self.space(host)
            ip("netns", "add", space)
            ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", host, "netns", self.switch)
            ip("-n", self.switch, "link", "set", "dev", host, "master", "bridge", "up")
            address = f"{ADDRESSES[self.version].format(number)}/{24 if self.version == 4 else 64}"
            more = ["nodad"] if self.version == 6 else []
            ip("-n", space, "addr", "add", address, "dev", "eth0", *more)
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def space(self, host):
        return f"{self.prefix}-{host}"

    def cut(self, host):
        ip("-n", self.switch, "link", "set", "dev", host, "down")

    def mend(self, host):
        ip("-n", self.switch, "link", "set", "dev", host, "up")

    def remove(self):
        for name in (self.switch, *map(self.space, HOSTS)):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Hosts(Trial):
    """A federation whose server and sites are each in a namespace; `run` is typed at the server's."""

    def __init__(self, base, network, **changes):
        self.network, self.host = network, ADDRESSES[network.version].format(1)
        address = f"[{self.host}]:{PORT}" if network.version == 6 else f"{self.host}:{PORT}"
        super().__init__(base, address, control_port=(9093, CONTROL), **changes)

    def start(self, name):
        command = [*FEDSAC, "federation", *page_commands()[name]]
        inside = ["ip", "netns", "exec", self.network.space("server" if name == "run" else name)]
        with (self.folder.parent / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                [*inside, *command],
                stdout=out,
                stderr=out,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                cwd=self.folder.parent,
                start_new_session=True,
            )

    def reaches(self, host, port):
        """Whether a site's host can connect to a port of the server's."""
        command = [
            "ip",
            "netns",
            "exec",
            self.network.space(host),
            sys.executable,
            "-c",
            CONNECTS,
            self.host,
            str(port),
        ]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def network(request):
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    made = Network(request.param)
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError) as error:
        made.remove()
        said = getattr(error, "stderr", "") or error
        pytest.skip(f"no network namespaces on a bridge can be made here: {said}")
    yield made
    made.remove()


def begun(base, network, **changes):
    """Server, sites and run, each started where it belongs."""
    trial = Hosts(base, network, **changes)
    trial.start("server")
    until(lambda: trial.reaches("a", PORT), trial)
    for name in SIZES:
        trial.start(name)
    trial.start("run")
    return trial


@pytest.mark.parametrize("network", [4], indirect=True, ids=["IPv4"])
def test_links_are_cut_in_a_round_and_come_back(network, tmp_path):
    """b is cut off while it trains: the others go on without it. Then a is, too: c alone is too few, so that rounds go
    on only once b is back, and answers."""
    trial = begun(tmp_path, network, rounds=(20, 12), repeats=(20, 1000), aside_after=(3, 1000))
    try:
        assert not trial.reaches("a", CONTROL), "Flower's own server is on loopback alone"
        until(lambda: len(rounds(trial.folder)) >= 1, trial)
        pending = trial.folder / "b" / "pending.order"
        until(lambda: pending.exists(), trial, pause=0.001)
        network.cut("b")
        until(lambda: rounds(trial.folder)[-1]["answered"] == ["a", "c"], trial)
        network.cut("a")
        stalled = len(trial.of_kind("repeated"))
        until(lambda: len(trial.of_kind("repeated")) > stalled or len(rounds(trial.folder)) == 12, trial)
        assert len(rounds(trial.folder)) < 12, "c alone is too few"
        network.mend("b")
        until(lambda: rounds(trial.folder)[-1]["answered"] == ["b", "c"], trial)
        network.mend("a")
        trial.finish()
        for name in SIZES:
            assert (trial.folder / name / "receipt.json").exists()
        assert trial.of_kind("refused") == []
    finally:
        trial.end()


@pytest.mark.parametrize("network", [6], indirect=True, ids=["IPv6"])
def test_a_federation_on_ipv6(network, tmp_path):
    trial = begun(tmp_path, network, rounds=(20, 3))
    try:
        trial.finish()
        assert [body["answered"] for body in rounds(trial.folder)] == [sorted(SIZES)] * 3
    finally:
        trial.end()
