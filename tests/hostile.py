"""Behaviours of hostile clients, for tests: `--behaviour tests.hostile:flipped`."""

HOSTILE = ("client-01", "client-04")


def flipped(round, client, update):
    """The trained model, sign-flipped and five times as long."""
    return -5 * update.trained if client in HOSTILE else update.trained


def reversed_step(round, client, update):
    """Five times the step, backwards."""
    return update.received - 5 * (update.trained - update.received) if client in HOSTILE else update.trained


def silent(round, client, update):
    return None if client in HOSTILE else update.trained
