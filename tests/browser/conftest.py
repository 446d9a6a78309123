"""One browser and two meshes for all tests of the page in a worker."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from harness.a2a.open_page import OpenPage, serve_open_page
from harness.a2a.page_mesh import PageMesh, open_page_mesh
from harness.browser import open_browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    async with open_page_mesh(tmp_path_factory.mktemp("page")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def open_page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenPage]:
    async with serve_open_page(tmp_path_factory.mktemp("open-page")) as opened:
        yield opened
