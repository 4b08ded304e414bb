"""Logs of a federation: the sites' own, as text or JSON, and that of Flower's server; none grows without end."""

import json
import logging
import shutil
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

LOG_BYTES, LOG_FILES = 5_000_000, 3  # of a log before a new one is begun, and how many old ones are kept
TEXT, JSON = "text", "json"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, site, message, and the traceback if there is one."""

    def __init__(self, site: str) -> None:
        super().__init__()
        self._site = site

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "level": record.levelname.lower(), "site": self._site, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to(path: Path, site: str, form: str) -> None:
    """Write what this process logs to a file; of earlier files, the last few are kept."""
    to = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    to.setFormatter(JsonLines(site) if form == JSON else text)
    logger = logging.getLogger("fedsac")
    logger.addHandler(to)
    logger.setLevel(logging.INFO)


def rotate(path: Path) -> None:
    """Begin a log anew that another process appends to and does not close, if it is large: its content is copied to
    `.1`, what was there to `.2`, and so on. What is written meanwhile may be lost."""
    if not path.exists() or path.stat().st_size <= LOG_BYTES:
        return
    for number in range(LOG_FILES - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    with path.open("r+b") as file:
        file.truncate()
