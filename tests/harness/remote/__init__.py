"""Services outside the mesh: model providers, search engines, webhook receivers, remote agents."""
