"""The fonts of this machine that a PDF can be written with: whichever has the characters."""

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from fedsac.errors import FedsacError

SUFFIXES = (".ttf", ".otf", ".ttc")
# As wide as Helvetica, by which drawings are laid out, come first.
PLAIN = ("LiberationSans-Regular", "Arimo-Regular", "Arial", "arial", "DejaVuSans", "NotoSans-Regular")
BOLD = ("LiberationSans-Bold", "Arimo-Bold", "Arial Bold", "arialbd", "DejaVuSans-Bold", "NotoSans-Bold")
# For what these lack; of all others the name decides.
LIKED = ("DejaVuSans", "NotoSans-Regular", "NotoSansArabic-Regular", "DroidSansFallbackFull", "DroidSansFallback")
NOT_LIKED = ("bold", "italic", "oblique", "mono", "serif", "condensed", "light", "thin", "black", "emoji")


def font_named(names: Iterable[str]) -> Path | None:
    """The first of these fonts that there is."""
    found = {path.stem: path for path in reversed(_files())}
    return next((found[name] for name in names if name in found), None)


def fonts_for(characters: Iterable[str], text: str) -> list[Path]:
    """Fonts that together have these characters of a text; an error where no font has one of them."""
    missing, chosen = {ord(c) for c in characters}, []
    for path in _by_liking():
        if not missing:
            break
        if covered := missing & characters_of(path):
            chosen.append(path)
            missing -= covered
    if missing:
        lacking = "".join(map(chr, sorted(missing)[:8]))
        raise FedsacError(
            f"no font here has {lacking!r} of {text[:40]!r}, which a .pdf needs: install one (Debian: "
            "fonts-droid-fallback), or name a folder that has one in FEDSAC_FONTS; the .svg has it"
        )
    return chosen


@lru_cache(maxsize=64)
def characters_of(path: Path) -> frozenset[int]:
    """The characters that a font has; none where it cannot be read."""
    from fontTools.ttLib import TTFont, TTLibError

    try:
        with path.open("rb") as file:  # it leaves a file open that it cannot read
            return frozenset(TTFont(file, lazy=True, fontNumber=0).getBestCmap() or ())
    except (TTLibError, OSError, ValueError, KeyError):
        return frozenset()


def _by_liking() -> list[Path]:
    def key(path: Path) -> tuple[int, bool, str]:
        stem = path.stem
        rank = LIKED.index(stem) if stem in LIKED else len(LIKED)
        return rank, any(part in stem.lower() for part in NOT_LIKED), stem

    return sorted(_files(), key=key)


def _files() -> list[Path]:
    """All font files, in the order of their folders."""
    return list(_found(os.environ.get("FEDSAC_FONTS")))


@lru_cache(maxsize=4)
def _found(own: str | None) -> tuple[Path, ...]:
    return tuple(
        path
        for folder in _folders(own)
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file()
    )


def _folders(own: str | None) -> Iterator[Path]:
    named = [] if not own else [Path(own)]
    home = Path.home()
    if sys.platform == "win32":
        system = [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    elif sys.platform == "darwin":
        system = [home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    else:
        shares = [home / ".local/share", Path("/usr/local/share"), Path("/usr/share")]
        system = [home / ".fonts", *(share / "fonts" for share in shares)]
    return (folder for folder in (*named, *system) if folder.is_dir())
