"""A remote agent on your mesh, by the URL of its A2A card.

    $ python sdk_agent.py 9000
    $ REMOTE_URL=http://127.0.0.1:9000 trunkline up --agent remote:remote
    $ trunkline ask --agent remote "one two three"
    three two one

The first command starts an agent made with another SDK; any other URL will do.
Its stream becomes a normal task: readers can resume it, canceling it cancels the remote task, and
the remote agent's questions reach the caller. Requests carry the token in REMOTE_TOKEN, if set.
"""

import os

from trunkline import from_a2a, run

remote = from_a2a(
    os.environ.get("REMOTE_URL", "http://127.0.0.1:9000"),
    name="remote",
    token_env="REMOTE_TOKEN" if "REMOTE_TOKEN" in os.environ else "",
)

if __name__ == "__main__":
    run(remote)
