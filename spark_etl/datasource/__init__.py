"""The PySpark data source `highwater`: topics as tables and streams. `register(spark)` makes the name known."""

from spark_etl.datasource.source import FORMAT, HighwaterDataSource, register

__all__ = ["FORMAT", "HighwaterDataSource", "register"]
