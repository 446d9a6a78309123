"""Every row of the error table is the same error over HTTP+JSON as over JSON-RPC."""

import json

import pytest
from google.rpc import code_pb2

from trunkline_bridge import errors
from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.rest import RestBinding, RestResource, RestVersion
from trunkline_bridge.edge import http
from trunkline_bridge.errors import ErrorKind, WireError
from trunkline_bridge.versions.v0_3.rest_methods import RestV03
from trunkline_bridge.versions.v1_0.json_methods import RestV1

ROWS = {
    name: row
    for module in (errors, http)
    for name, row in vars(module).items()
    if isinstance(row, ErrorKind)
}


# Nothing is called.
REST = RestBinding(None, None, is_strict=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [RestV1(None), RestV03(None)])  # type: ignore[arg-type]
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_an_error_has_its_own_status_and_the_details_of_json_rpc(
    row: ErrorKind, version: RestVersion
) -> None:
    call = RestResource(REST, version, {}).new_call()
    error = WireError(row, "what to do", {"taskId": "t"}, (("id", "is wrong"),), "2")
    response = call.error_response(error)
    said = json.loads(response.body)["error"]
    over_rpc = error_object(error)
    assert (said["message"], said["details"]) == (over_rpc["message"], over_rpc["data"])
    assert said["code"] == response.status == row.http_status
    assert said["status"] == code_pb2.Code.Name(row.grpc_code)
