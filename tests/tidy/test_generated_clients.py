"""The SDK's synchronous clients are what the generator makes of the asynchronous ones."""

import pytest

from generate_sync_clients import CLIENTS, PACKAGE, Client, render


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_synchronous_client_is_generated_from_its_asynchronous_twin(client: Client) -> None:
    assert (PACKAGE / client.file_name).read_text() == render(client), "run `python platform/generate_sync_clients.py`"
