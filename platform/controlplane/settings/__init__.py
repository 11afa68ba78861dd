"""Settings: `base` holds what is true everywhere; `local`, `production` and `test` say what differs."""
