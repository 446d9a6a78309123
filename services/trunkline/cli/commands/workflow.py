"""The commands for workflows."""

import typer

from trunkline.cli.commands import workflow_runs

workflow = typer.Typer(help="Run workflows, and manage their versions.", rich_markup_mode=None)
workflow_runs.add_commands(workflow)
