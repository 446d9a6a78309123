"""The gRPC server of a process, and the servicers of its host."""

from trunkline.server.interceptor import CallInterceptor
from trunkline.server.mesh_server import MeshServer
from trunkline.server.message_servicer import MessageServicer
from trunkline.server.task_servicer import TaskServicer

__all__ = ["CallInterceptor", "MeshServer", "MessageServicer", "TaskServicer"]
