"""Each kind of error has the same details over HTTP+JSON as over JSON-RPC."""

import json

import pytest
from google.rpc import code_pb2

from trunkline.a2a_wire import errors
from trunkline.a2a_wire.errors import ErrorKind, WireError
from trunkline_bridge.a2a.bindings.rest import RestBinding, RestResource, RestVersion
from trunkline_bridge.a2a.versions.jsonrpc_envelope import error_object
from trunkline_bridge.a2a.versions.v0_3.rest_methods import RestV03
from trunkline_bridge.a2a.versions.v1_0.json_methods import RestV1
from trunkline_bridge.http import messages as http

KINDS = {
    name: kind
    for module in (errors, http)
    for name, kind in vars(module).items()
    if isinstance(kind, ErrorKind)
}


# The tests call no operation of it.
REST = RestBinding(None, None, is_strict=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [RestV1(), RestV03()])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_error_has_its_http_status_and_the_details_of_json_rpc(
    kind: ErrorKind, version: RestVersion
) -> None:
    call = RestResource(REST, version, {}).new_call()
    error = WireError(kind, "what to do", {"taskId": "t"}, (("id", "is wrong"),), "2")
    response = call.error_response(error)
    rest_error = json.loads(response.body)["error"]
    rpc_error = error_object(error)
    assert (rest_error["message"], rest_error["details"]) == (
        rpc_error["message"],
        rpc_error["data"],
    )
    assert rest_error["code"] == response.status == kind.http_status
    assert rest_error["status"] == code_pb2.Code.Name(kind.grpc_code)
