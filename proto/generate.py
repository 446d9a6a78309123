"""The only generator, from proto/ to services/. `--check` only says when that is stale."""

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

PROTO = Path(__file__).resolve().parent
SERVICES = PROTO.parent / "services"
PACKAGES = ("trunkline/v1", "trunkline/a2a/v1", "trunkline/a2a/v0_3")
INITS = {
    "trunkline/v1": '"""Generated from proto/trunkline/v1; never edited."""\n',
    "trunkline/a2a": '"""A2A\'s own messages, generated."""\n',
    "trunkline/a2a/v1": '"""Generated from proto/trunkline/a2a/v1; never edited."""\n',
    "trunkline/a2a/v0_3": '"""Generated from proto/trunkline/a2a/v0_3; never edited."""\n',
}


def generate(target: Path) -> None:
    """Write all generated packages below `target`, replacing what is there."""
    from grpc_tools import protoc

    for package in PACKAGES:
        shutil.rmtree(target / package, ignore_errors=True)
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    out = str(target)
    # protoc finds its plug-ins beside the interpreter that runs this.
    scripts = Path(sys.executable).parent
    code = protoc.main(
        [
            "protoc",
            f"--proto_path={PROTO}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out={out}",
            f"--mypy_grpc_out={out}",
            *sources,
        ]
    )
    if code:
        raise SystemExit(code)
    for package, text in INITS.items():
        (target / package / "__init__.py").write_text(text)
    for path in target.rglob("*_pb2_grpc.py*"):
        if not path.name.startswith(tuple(_services())):
            path.unlink()


def _services() -> list[str]:
    """Names of the files that define a service; protoc writes empty stubs for the others."""
    return [f"{path.stem}_pb2_grpc" for path in PROTO.rglob("*_service.proto")]


def _stale(fresh: Path) -> list[str]:
    """Files that differ between a fresh run and the committed code."""
    stale = []
    for package in PACKAGES:
        names = {p.name for root in (fresh, SERVICES) for p in (root / package).glob("*.py*")}
        _, mismatch, errors = filecmp.cmpfiles(fresh / package, SERVICES / package, names, False)
        stale += [f"{package}/{name}" for name in (*mismatch, *errors)]
    return stale


def main() -> int:
    """Generate, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail when the committed code is stale"
    )
    if not parser.parse_args().check:
        SERVICES.mkdir(exist_ok=True)
        generate(SERVICES)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trunkline").mkdir()
        generate(Path(folder))
        stale = _stale(Path(folder))
    if stale:
        print("generated code is stale; run `make generate`:", *stale, sep="\n  ", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
