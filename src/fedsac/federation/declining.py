"""How a site says no: by a code. Why exactly stays in the site's own log, because reasons may quote data and paths."""

import re

from fedsac.errors import FedsacError
from fedsac.version import __version__

DECLINED = "declined"  # the key in a reply's facts under which a site says that it does not carry out an order
OWN_NETWORK = "network"  # the key under which a site that builds another network says its hash
DIVERGED = "diverged"
FAILED = "failed"
VERSION = "version"

CODES = {
    DIVERGED: "training ended in NaN or infinity",
    "batch": "smaller batches than this site trains on",
    "data": "the site cannot read its data; its log says why",
    "epsilon": "it would spend more privacy than this site's most_epsilon",
    FAILED: "the site could not carry out the order; its log says why",
    "history": "the order is not signed with the key that the site has pinned, or contradicts the ledger that it knows",
    "losses": "this site trains with differential privacy and reports no losses",
    "lr": "a higher learning rate than this site trains with",
    "model": "another model than the one that was agreed on at joining",
    "network": "the site builds another network, or has not allowed this one; its log says which, with both hashes",
    "not joined": "the site has not joined yet",
    "order": "there is no such order; does the site need a newer fedsac?",
    "private": "this site trains with differential privacy, which takes a perceptron and plain SGD, all classes alike",
    "receipt": "the receipt is wrong",
    "rounds": "the site has trained as often as its most_rounds allows",
    "samples": "the site has fewer samples than its least_samples",
    "schema": "schemas do not agree: the site's data has other features or classes; its log says which",
    "settings": "other settings of training than those that a coordinator decides",
    "steps": "fewer steps than this site trains",
    "terms": "other terms than those that the site joined on; its operator can agree anew (delete agreed.json there)",
    VERSION: "the site runs a fedsac that cannot read this coordinator's orders; install one version everywhere",
}
"""The only words about an order that leave a site, and what the coordinator shows for them."""


class DeclinedError(FedsacError):
    """An order that a site does not carry out: the `code` is sent, the text stays in the site's log. `own` is the
    hash of the network that the site builds, where that is the reason; it tells nothing of its data."""

    def __init__(self, code: str, why: str, own: str | None = None) -> None:
        assert code in CODES
        self.code, self.own = code, own
        super().__init__(why)


def shown(code: object, *, runs: object = None, own: object = None, ours: object = None) -> str:
    """What the coordinator says of a reply that declines; a code that it does not know is not repeated. `runs` is the
    version that the site says it runs; `own` and `ours` are the hashes of the site's network and of the federation's,
    where they differ."""
    if code == VERSION and (theirs := version_said(runs)):
        return f"{code}: the site runs fedsac {theirs}, this coordinator {__version__}; install {__version__} there"
    if not isinstance(code, str) or code not in CODES:
        return "declined for an unknown reason"
    hashes = f" (the site's is {own}, the federation's {ours})" if _is_hash(own) and _is_hash(ours) else ""
    return f"{code}: {CODES[code]}{hashes}"


def version_said(said: object) -> str | None:
    """The version that a site says it runs, if it is one."""
    return said if isinstance(said, str) and re.fullmatch(r"[0-9][0-9A-Za-z.+-]{0,39}", said) else None


def _is_hash(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None
