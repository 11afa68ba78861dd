"""What every app shares: errors and their problem+json form, paging, idempotency keys, audit events, request ids."""
