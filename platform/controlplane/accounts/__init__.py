"""Who is asking: users, API tokens and the actor that both of them become."""
