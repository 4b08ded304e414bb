"""The coordinator: runs the round loop of `runs.loop` with sites as clients. How messages travel is `Link`'s matter.

It may be killed at any instant and started again: it resumes from the last checkpoint in the run's folder. A round
counts once its checkpoint is in place; what was done before that and lost is in the ledger all the same.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from fedsac.defences.commitment import HARDENED
from fedsac.doors import METRICS
from fedsac.federation.data import coordinator_split
from fedsac.federation.engine import SiteEngine
from fedsac.federation.folder import Federation
from fedsac.federation.ledger import Ledger
from fedsac.federation.link import Link
from fedsac.federation.members import Member, packed, unpacked
from fedsac.federation.networks import check_supported
from fedsac.federation.pay import Payer
from fedsac.federation.session import Session
from fedsac.methods import make
from fedsac.methods.base import Method, State, Task
from fedsac.runs.folder import Folder
from fedsac.runs.loop import play
from fedsac.runs.places import is_run
from fedsac.runs.prepared import Prepared
from fedsac.runs.running import ENGINE, Running
from fedsac.runs.setup import prepare_split
from fedsac.runs.watcher import RunInfo, Watcher


class Coordinator:
    """One run of a federation, new or resumed."""

    def __init__(
        self,
        federation: Federation,
        link: Link,
        say: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.federation, self._link, self._say, self._sleep = federation, link, say, sleep
        self._run = Running(prepared(federation))

    def run(self) -> None:
        """Run all rounds that are left, and deliver the rewards."""
        self.federation.receipts.mkdir(parents=True, exist_ok=True)
        with self._folder() as folder:
            self._run.folder = folder
            self._warn(folder)
            ledger = Ledger(self.federation.ledger)
            self._session = Session(self.federation, self._link, ledger, self._run, self._say, self._sleep)
            self._resume()
            play([self._run], SiteEngine(self._session), LedgerWatcher(self._session))
            payer = Payer(self._session)
            payer.pay(sorted(self.members))
            payer.wait_for_absent()

    def _warn(self, folder: Folder) -> None:
        """Say what looks wrong with the coordinator's own data."""
        if warnings := self._run.prepared.warnings:
            folder.warn(warnings)
            for line in warnings:
                self._say(f"warning: {line}")

    def _folder(self) -> Folder:
        path = self.federation.run
        return Folder.open(path) if is_run(path) else Folder.create(path, self._run.prepared.config)

    def _resume(self) -> None:
        """Resume after the last committed round, if there is one."""
        session, run = self._session, self._run
        run.engine_state = self._engine_state
        if not run.take_up(self._say):
            config = run.prepared.config
            session.ledger.append("began", fingerprint=run.prepared.fingerprint, config=config.toml())
            return
        ours = run.state.pop(ENGINE)
        session.members.update(unpacked(ours["members"]))
        session.ledger.append("resumed", round=run.round, committed=ours["ledger"])
        self._say(f"going on after round {run.round}")

    def _engine_state(self) -> State:
        """What a checkpoint holds beside the method's state."""
        ledger, members = self._session.ledger, self._session.members
        ours = {"members": packed(members), "clients": list(self.clients), "ledger": len(ledger.entries)}
        return {ENGINE: ours}

    # -- the run's current state

    @property
    def prepared(self) -> Prepared:
        return self._run.prepared

    @property
    def method(self) -> Method:
        return self._run.method

    @property
    def task(self) -> Task:
        return self._run.task

    @property
    def state(self) -> State:
        return self._run.state

    @property
    def records(self) -> list[dict[str, Any]]:
        return self._run.records

    @property
    def members(self) -> dict[str, Member]:
        return self._session.members

    @property
    def clients(self) -> tuple[str, ...]:
        """The members that the method's state is for, in its order."""
        return self._run.task.clients


class LedgerWatcher(Watcher):
    """Writes every round to the ledger before it is committed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        """Writes nothing: joining and resuming are logged where they happen."""

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        clients = self._session.run.task.clients
        body = {name: record[name] for name in ("round", "answered", "failed", "bytes", "wire", "neurons")}
        body |= {name: record[name] for name in (HARDENED, "suspected") if name in record}
        self._session.ledger.append("round", **body, clients=list(clients), reputations=record["reputations"])
        before = self._session.run.records[-2].get("suspected", {}) if record["round"] > 1 else {}
        for name, reason in record.get("suspected", {}).items():
            if name not in before:
                self._session.say(f"round {record['round']}: {name} is suspected: {reason}")
        answered = f"{len(record['answered'])} of {len(clients)} answered"
        self._session.say(f"round {record['round']} of {run.config.rounds}: {answered}")


def prepared(federation: Federation) -> Prepared:
    """The coordinator's own data and the model's start. What does not exist is an error before any site is asked."""
    config = federation.config
    make(config)
    METRICS.resolve(config.metric)
    if federation.model:
        config = config.replace(network=federation.model)
    made = prepare_split(config, coordinator_split(federation))
    check_supported(made.layout)
    return made
