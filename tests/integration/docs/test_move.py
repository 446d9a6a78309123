"""The commands of the page on the move to a database, in their order."""

from pathlib import Path

from harness.journal.full_folder import make_full_folder
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import run_command
from harness.pages import ROOT, commands, read_blocks, trunkline_words

URL = "postgresql://trunkline:PASSWORD@db:5432/trunkline"


async def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    await make_full_folder(tmp_path / ".trunkline")
    page = read_blocks(ROOT / "docs/move.md")
    steps = [step for block in page if block.language == "console" for step in commands(block)]
    variables: dict[str, str] = {}
    async with new_database() as url:
        for words, shown in steps:
            if words == ["unset", "TRUNKLINE_STORE"]:
                variables.clear()
                continue
            arguments = trunkline_words(words)
            if arguments is None:
                assert words == ["export", f"TRUNKLINE_STORE={URL}"]
                variables["TRUNKLINE_STORE"] = url
                continue
            local = [url if word == URL else word for word in arguments]
            done = await run_command(*local, stdin=None, folder=tmp_path, **variables)
            assert done.exit == 0, done.err
            assert done.out.splitlines()[: len(shown)] == shown
