"""Checks that what `pip install` of the wheel brings stays small. Runs in its environment.

Counts the files of all packages, without byte code, and without pip itself.
"""

import sys
from importlib import metadata
from typing import Final

_PACKAGES_LIMIT_MB: Final = 137.8
"""The packages of others: what they had on 2026-11-22. On 2026-11-27 it was 88 of 137.4 MB."""
_OURS_LIMIT_MB: Final = 8.3
"""Our code, with the page. On 2026-11-27 it was 8.2 MB, 0.2 MB of it for exact JSON, OAuth and
what public bug reports showed."""
_OURS: Final = "trunkline"
_INSTALLERS: Final = {"pip", "setuptools", "wheel"}


def measure_mb(package: metadata.Distribution) -> float:
    """Return the size of a package's files."""
    files = (file.locate() for file in package.files or () if file.suffix != ".pyc")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def main() -> None:
    """Print the size, and what is largest if it is too large."""
    sizes = {
        package.name: measure_mb(package)
        for package in metadata.distributions()
        if package.name not in _INSTALLERS
    }
    ours = sizes.pop(_OURS)
    total = sum(sizes.values())
    print(f"{len(sizes)} packages, {total:.1f} MB, and {ours:.1f} MB of ours")
    if total > _PACKAGES_LIMIT_MB:
        for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:10]:
            print(f"{sizes[name]:8.1f} MB  {name}")
        sys.exit(f"the packages of the base install may have {_PACKAGES_LIMIT_MB:g} MB")
    if ours > _OURS_LIMIT_MB:
        sys.exit(f"our code may have {_OURS_LIMIT_MB:g} MB")


if __name__ == "__main__":
    main()
