"""The schema: all subjects in one, with its limits.

`python -m trunkline_bridge.api.graphql.schema` prints it.
"""

from typing import Any

import strawberry
from graphql import GraphQLError
from strawberry.extensions import DisableIntrospection
from strawberry.schema.config import StrawberryConfig
from strawberry.types import ExecutionContext

from trunkline.settings import GraphQLSettings
from trunkline_bridge.api.graphql.declarations import object_type
from trunkline_bridge.api.graphql.errors import ReportedErrors
from trunkline_bridge.api.graphql.limits import OperationLimits
from trunkline_bridge.api.graphql.messages import (
    MessageMutations,
    MessageQueries,
    MessageSubscriptions,
)
from trunkline_bridge.api.graphql.rooms import RoomMutations, RoomQueries
from trunkline_bridge.api.graphql.runs import RUN_EVENTS
from trunkline_bridge.api.graphql.workflows import (
    WorkflowMutations,
    WorkflowQueries,
    WorkflowSubscriptions,
)


@object_type(name="Query")
class RootQuery(MessageQueries, RoomQueries, WorkflowQueries):
    """Reads messages, rooms, workflows and their runs."""


@object_type(name="Mutation")
class RootMutation(MessageMutations, RoomMutations, WorkflowMutations):
    """Sends messages, changes rooms, and controls workflows and their runs."""


@object_type(name="Subscription")
class RootSubscription(MessageSubscriptions, WorkflowSubscriptions):
    """Streams of messages, and of the events of runs."""


class MeshSchema(strawberry.Schema):
    """The schema. Errors are logged where they are converted, without content."""

    def process_errors(
        self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None
    ) -> None:
        """Do nothing, because the library would log the content of invalid requests."""


def build_schema(settings: GraphQLSettings) -> MeshSchema:
    """Return the schema with the limits of the settings."""
    extensions: list[Any] = [ReportedErrors, lambda: OperationLimits(settings)]
    if not settings.introspection:
        extensions.append(DisableIntrospection)
    return MeshSchema(
        RootQuery,
        RootMutation,
        RootSubscription,
        types=RUN_EVENTS,
        extensions=extensions,
        config=StrawberryConfig(disable_field_suggestions=not settings.introspection),
    )


if __name__ == "__main__":
    print(build_schema(GraphQLSettings()).as_str())  # noqa: T201  its purpose
