"""Downloads from the publishers or a mirror, checked by hash; a file appears in its folder only when it is complete."""

import gzip
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfileobj
from urllib.parse import urlsplit

from fedsac.data.messages import cause
from fedsac.data.published.readers import present
from fedsac.data.published.registry import DATA_ENV, PublishedDataSet, cache_folder, find, require_folder
from fedsac.errors import FedsacError

MIRROR_ENV = "FEDSAC_MIRROR"
ELSEWHERE_HINT = "get the archive elsewhere"
TIMEOUTS_SECONDS = (10.0, 30.0)  # to connect, and between two chunks: an offline machine must not wait long


def obtain(wanted: PublishedDataSet, data_dir: Path | None, quiet: bool) -> Path:
    """The folder with all files of a data set, which is downloaded first if it is not on this machine."""
    search = find(wanted, data_dir)
    if search.folder is not None:
        return search.folder
    root = cache_folder() if data_dir is None else require_folder(data_dir, "--data-dir")
    folder = root / wanted.folder
    source = _source(wanted)
    try:
        with _temporary_folder(folder) as temporary:
            _download(wanted, source, folder, temporary, quiet)
    except _DownloadError as err:
        raise FedsacError(_missing_message(wanted, source, folder, search.partial, str(err))) from err
    except OSError as err:
        raise FedsacError(
            f"{folder}: cannot be written ({err.strerror or err}); name another folder with --data-dir"
        ) from err
    return folder


class _DownloadError(Exception):
    """The server could not be reached or did not deliver the file; the text says why."""


def _source(wanted: PublishedDataSet) -> str:
    """The address of the folder to download from: the publisher's, or the mirror's."""
    mirror = os.environ.get(MIRROR_ENV)
    if not mirror:
        return wanted.url
    try:
        parts = urlsplit(mirror)
        usable = parts.scheme in ("http", "https") and bool(parts.netloc)
    except ValueError:
        usable = False
    if not usable:
        raise FedsacError(f"{MIRROR_ENV} is {mirror!r}, not an http(s):// address; correct or unset it")
    return f"{mirror.rstrip('/')}/{wanted.name}/"


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder inside the folder, so that finished files can be renamed into place."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fedsac-", dir=folder) as temporary:
            yield Path(temporary)
    finally:
        if made:
            with suppress(OSError):  # it holds files now: the download went well, at least in part
                folder.rmdir()


def _download(wanted: PublishedDataSet, source: str, folder: Path, temporary: Path, quiet: bool) -> None:
    for name, md5 in wanted.md5.items():
        archive = name.endswith(".tar.gz")
        if not archive and present(folder, name):
            continue
        path = _retrieve(source + name, name, md5, temporary, quiet)
        ready = _unpack(path, wanted, source + name) if archive else [path]
        for part in ready:
            # Files that are there already are the user's: never replace them.
            if not present(folder, part.name):
                part.replace(folder / part.name)


def _retrieve(url: str, name: str, md5: str, temporary: Path, quiet: bool) -> Path:
    import pooch
    import requests

    def download(url: str, output: str, owner: object) -> None:
        _stream(url, Path(output), quiet)
        got = pooch.file_hash(output, alg="md5")
        if got != md5:
            raise FedsacError(
                f"{url}: refused and removed: expected md5 {md5}, got {got}; "
                f"try again, and if it happens again get {name} from elsewhere"
            )

    pooch.get_logger().setLevel("WARNING")  # it announces every file on stderr otherwise
    try:
        path = Path(pooch.retrieve(url, f"md5:{md5}", fname=name, path=temporary, downloader=download))
    except requests.RequestException as err:
        raise _DownloadError(_reason(err, url)) from err
    path.chmod(0o644)  # pooch leaves 0600, which locks colleagues out of a shared folder
    return path


def _stream(url: str, output: Path, quiet: bool) -> None:
    """Download an address to a file. pooch's own downloader leaves the connection open on failure."""
    import requests
    from tqdm import tqdm

    headers = {"Accept-Encoding": "identity"}  # a .gz unpacked on the way would not match its hash
    hidden = quiet or not sys.stderr.isatty()
    with (
        requests.get(url, stream=True, timeout=TIMEOUTS_SECONDS, headers=headers) as response,
        output.open("wb") as file,
    ):
        response.raise_for_status()
        size = response.headers.get("Content-Length", "")
        total = int(size) if size.isdecimal() else None
        with tqdm(total=total, desc=Path(url).name, unit="B", unit_scale=True, disable=hidden) as bar:
            for chunk in response.iter_content(1 << 16):
                file.write(chunk)
                bar.update(len(chunk))


def _reason(err: Exception, url: str) -> str:
    from requests import exceptions

    host = urlsplit(url).netloc
    if isinstance(err, exceptions.HTTPError) and err.response is not None:
        return f"{url}: HTTP {err.response.status_code}"
    if isinstance(err, exceptions.ChunkedEncodingError):
        return f"{url}: the connection broke before the file was whole"
    if isinstance(err, exceptions.Timeout):
        return f"no answer from {host} in time"
    if isinstance(err, exceptions.SSLError):
        return f"{host}: its certificate could not be verified"
    if isinstance(err, exceptions.ConnectionError):
        return f"no connection to {host}"
    return f"{url}: {cause(err)}"


def _missing_message(wanted: PublishedDataSet, source: str, folder: Path, partial: tuple[str, ...], reason: str) -> str:
    unpack = "; unpack it there" if any(name.endswith(".tar.gz") for name in wanted.md5) else ""
    place = folder.parent if unpack else folder
    some = f" (found in part: {'; '.join(partial)})" if partial else ""
    return (
        f"{wanted.name} is not on this machine{some} and could not be downloaded ({reason}): "
        f"put {', '.join(wanted.md5)} from {source} into {place}{unpack}, or keep the files in a folder "
        f"{wanted.folder} below one that --data-dir or {DATA_ENV} names"
    )


def _unpack(archive: Path, wanted: PublishedDataSet, url: str) -> list[Path]:
    """Extract the expected files of an archive into the archive's folder."""
    # Only members with these names are read, and written to our paths: no path from the archive is ever used.
    expected = {f"{wanted.folder}/{name}": archive.parent / name for name in wanted.files}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.name not in expected:
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise FedsacError(f"{url}: {member.name} in it is not a plain file; {ELSEWHERE_HINT}")
                with content, expected[member.name].open("wb") as out:
                    copyfileobj(content, out)
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error) as err:
        raise FedsacError(f"{url}: cannot be unpacked ({cause(err)}); {ELSEWHERE_HINT}") from err
    if lacking := [name for name, path in expected.items() if not path.exists()]:
        raise FedsacError(f"{url}: lacks {', '.join(lacking)}; {ELSEWHERE_HINT}")
    return list(expected.values())
