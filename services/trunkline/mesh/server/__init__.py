"""The gRPC server of a process, and the servicers of its host."""

from trunkline.mesh.server.interceptor import CallInterceptor
from trunkline.mesh.server.mesh_server import MeshServer
from trunkline.mesh.server.message_servicer import MessageServicer
from trunkline.mesh.server.task_servicer import TaskServicer

__all__ = ["CallInterceptor", "MeshServer", "MessageServicer", "TaskServicer"]
