"""Parses requests for pages of tasks, and builds their responses."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from google.protobuf import timestamp_pb2

from trunkline.core.storable_texts import check_texts
from trunkline.errors import InvalidArgumentError
from trunkline.journal.store import TaskFilter, TaskPage, TaskRow
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 100


def parse_filter(request: task_service_pb2.ListTasksRequest) -> TaskFilter:
    """Return the filter of a request.

    Raises:
        InvalidArgumentError: a text has NUL or an unpaired surrogate.
    """
    check_texts(account=request.account, agent=request.agent, context_id=request.context_id)
    return TaskFilter(
        account=request.account,
        agent=request.agent,
        context_id=request.context_id,
        state=request.state or None,
        status_after_ns=_status_after_ns(request) if request.HasField("status_after") else None,
    )


def _status_after_ns(request: task_service_pb2.ListTasksRequest) -> int:
    """Return the requested time in nanoseconds since 1970, limited to 64 bits as in the store."""
    return max(-(2**63), min(request.status_after.ToNanoseconds(), 2**63 - 1))


def parse_page_size(request: task_service_pb2.ListTasksRequest) -> int:
    """Return the page size of a request, or the default.

    Raises:
        InvalidArgumentError: the size is out of range.
    """
    if not 0 <= request.page_size <= MAX_PAGE_SIZE:
        raise InvalidArgumentError("pageSize", f"must be 1 to {MAX_PAGE_SIZE}, or left out")
    return request.page_size or DEFAULT_PAGE_SIZE


def parse_page_token(page_token: str) -> tuple[int, str] | None:
    """Return the status time and the id of the last row of the previous page.

    An empty token is None.

    Raises:
        InvalidArgumentError: `build_page` did not make this token.
    """
    if not page_token:
        return None
    try:
        text = base64.b64decode(page_token, altchars=b"-_", validate=True).decode()
        time_ns, separator, task_id = text.partition(" ")
        if not separator or not -(2**63) <= int(time_ns) < 2**63:
            raise ValueError
        return int(time_ns), task_id
    except (binascii.Error, ValueError) as error:
        problem = "is not a page token; send the one of the previous page, or none"
        raise InvalidArgumentError("pageToken", problem) from error


def build_page(page: TaskPage, *, has_more: bool) -> task_service_pb2.ListTasksResponse:
    """Return the response with a page, and with a token for the next page if there is one."""
    return _build_response([build_summary(row) for row in page.rows], page.total, has_more=has_more)


def merge_pages(
    pages: Sequence[task_service_pb2.ListTasksResponse], size: int
) -> task_service_pb2.ListTasksResponse:
    """Merge the pages of several journals into one page of at most `size` tasks."""
    rows = [row for page in pages for row in page.tasks]
    rows.sort(key=lambda row: (-row.status.timestamp.ToNanoseconds(), row.task_id))
    has_more = len(rows) > size or any(page.next_page_token for page in pages)
    return _build_response(rows[:size], sum(page.total_size for page in pages), has_more=has_more)


def _build_response(
    rows: Sequence[snapshot_pb2.TaskSummary], total: int, *, has_more: bool
) -> task_service_pb2.ListTasksResponse:
    token = make_page_token(rows[-1]) if has_more else ""
    return task_service_pb2.ListTasksResponse(tasks=rows, next_page_token=token, total_size=total)


def make_page_token(last: snapshot_pb2.TaskSummary) -> str:
    """Return the token of the page after this row."""
    text = f"{last.status.timestamp.ToNanoseconds()} {last.task_id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def build_summary(row: TaskRow) -> snapshot_pb2.TaskSummary:
    """Return the row of a list of tasks."""
    summary = snapshot_pb2.TaskSummary(
        task_id=row.task_id,
        context_id=row.context_id,
        agent=row.agent,
        status=task_pb2.TaskStatus(state=row.state, timestamp=_timestamp(row.status_time_ns)),
        create_time=_timestamp(row.create_time_ns),
        parent_task_id=row.parent_task_id,
    )
    if row.metadata:
        summary.metadata.ParseFromString(row.metadata)
    return summary


def _timestamp(time_ns: int) -> timestamp_pb2.Timestamp:
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromNanoseconds(time_ns)
    return timestamp
