"""A workflow of several versions, in a process that tests kill: `story`, as many as STORY_VERSIONS.

It adds a line to the file `notes` in the folder WORKFLOW_FOLDER, and asks the agent `gated`, which
runs elsewhere.
"""

import os

from harness.workflows.building import action_node, agent_node, build
from harness.workflows.host import NOTE
from trunkline import from_workflow, run
from trunkline.workflows.definition import Workflow


def build_story(version: int) -> Workflow:
    """Return a version, whose answer names it."""
    return build(
        "story",
        action_node("note", handler=NOTE, config={"line": "noted"}),
        agent_node("hold", "gated", "hold"),
        agent_node("say", "gated", "say"),
        {"id": "end", "output": f"version {version}"},
        edges="start > note > hold > say > end",
        version=version,
    )


if __name__ == "__main__":
    versions = range(1, int(os.environ["STORY_VERSIONS"]) + 1)
    run(from_workflow(*map(build_story, versions)))
