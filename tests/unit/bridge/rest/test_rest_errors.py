"""Every row of the error table is the same error over HTTP+JSON as over JSON-RPC."""

import json

import pytest
from google.rpc import code_pb2

from trunkline_bridge import errors
from trunkline_bridge.bindings.http_handler import HttpResponse
from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.rest import RestBinding
from trunkline_bridge.edge import http
from trunkline_bridge.errors import ErrorKind, WireError

ROWS = {
    name: row
    for module in (errors, http)
    for name, row in vars(module).items()
    if isinstance(row, ErrorKind)
}


# Nothing is called.
REST = RestBinding(None, None, is_strict=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/tasks", "/v1/tasks/t"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_an_error_has_its_own_status_and_the_details_of_json_rpc(row: ErrorKind, path: str) -> None:
    binding = REST.at({"path": path})
    assert binding is not None
    error = WireError(row, "what to do", {"taskId": "t"}, (("id", "is wrong"),), "2")
    failure = binding.failure(error, HttpResponse(None, binding))  # type: ignore[arg-type]
    said = json.loads(failure.body)["error"]
    over_rpc = error_object(error)
    assert (said["message"], said["details"]) == (over_rpc["message"], over_rpc["data"])
    assert said["code"] == failure.status == row.http_status
    assert said["status"] == code_pb2.Code.Name(row.grpc_code)
