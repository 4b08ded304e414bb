"""The coordinator's Flower processes, which nobody else on its host can use: `python -m fedsac.federation.hub`.

`superlink ARGS` is Flower's server with a credential on its control API, to which anybody who reaches it may else
submit code. `executor ADDRESS [CA]` starts the ServerApp of a submitted run, as Flower's own executor does, except that
Flower hands its secret token over on the command line, which `ps` shows to everybody. Both read the one secret from
`server/flwr/secret`, which only the coordinator's user can read.
"""

import hmac
import os
import secrets
import subprocess
import sys
from pathlib import Path

from fedsac.federation.flower_internals import run_executor, run_superlink, store_credential

SECRET_VARIABLE = "FEDSAC_CONTROL_SECRET"  # the path of the file with the secret
SECRET_FILE = "secret"


def new_secret(home: Path, address: str) -> Path:
    """Write a new secret to Flower's folder `home`, for the processes here and for the flwr command: its file."""
    path = home / SECRET_FILE
    secret = secrets.token_hex(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret)
    store_credential(home / "credentials.yaml", address, secret)
    return path


def _is_secret(given: str) -> bool:
    return hmac.compare_digest(given.encode(), Path(os.environ[SECRET_VARIABLE]).read_bytes())


def _start_server_app(options: list[str], token: str) -> None:
    """Start the ServerApp with its token in a file, which is there until the process has ended."""
    path = Path(os.environ[SECRET_VARIABLE]).with_name(f"token-{secrets.token_hex(8)}")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    for old in path.parent.glob("token-*"):
        if old != path:
            old.unlink(missing_ok=True)  # of an app that has read it long ago
    subprocess.Popen(["flwr-serverapp", *options, "--token-file", str(path)])


def main(arguments: list[str]) -> None:
    if arguments[0] == "superlink":
        run_superlink(arguments[1:], _is_secret)
    else:
        address, ca = arguments[1], arguments[2] if len(arguments) > 2 else None
        run_executor(address, ca, Path(os.environ[SECRET_VARIABLE]).read_bytes(), _start_server_app)


if __name__ == "__main__":
    main(sys.argv[1:])
