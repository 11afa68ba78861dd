"""Thin entry points: read, compose transforms, write. `python -m spark_etl.jobs.<job> --config FILE --result FILE`."""
