"""`DataFrame.mapInArrow` without pandas: Spark's own refuses to plan without it, though nothing of what then runs needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """The rows that the function makes of each partition's batches."""
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns: Any = udf(*(frame[name] for name in frame.columns))
    java: Any = frame._jdf
    # As DataFrame.mapInArrow: no barrier, no resource profile.
    return DataFrame(java.mapInArrow(columns._jc, False, None), frame.sparkSession)
