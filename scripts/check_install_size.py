"""Checks that what `pip install` of the wheel brings stays small. Runs in its environment.

Counts the files of all packages, without byte code, and without pip itself.
"""

import sys
from importlib import metadata
from typing import Final

# On 2026-11-24 it was 89 packages of 138.5 MB and 5.3 MB of ours.
_LIMIT_MB: Final = 146.0
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
    total = sum(sizes.values())
    print(f"{len(sizes)} packages, {total:.1f} MB")
    if total > _LIMIT_MB:
        for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:10]:
            print(f"{sizes[name]:8.1f} MB  {name}")
        sys.exit(f"the base install may have {_LIMIT_MB:g} MB")


if __name__ == "__main__":
    main()
